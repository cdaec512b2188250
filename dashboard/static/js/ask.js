/** Questions to the service through the dashboard's own server. */

/** The service, or the dashboard in front of it, said no. */
export class AskError extends Error {
  /** @param {number} status 0 when nothing answered */
  constructor(message, status) {
    super(message);
    this.name = "AskError";
    this.status = status;
  }
}

/**
 * GET JSON from the service.
 * @param {string} path without the leading slash, e.g. `telemetry/requests?recent=100`
 * @param {{fetch?: typeof fetch, signal?: AbortSignal}} [options]
 * @throws {AskError}
 */
export async function askJson(path, options = {}) {
  return (await ask(path, options)).json();
}

/** GET text; see askJson. */
export async function askText(path, options = {}) {
  return (await ask(path, options)).text();
}

/** POST JSON to the service; see askJson. */
export async function tellJson(path, body, options = {}) {
  const request = { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
  return (await ask(path, { ...options, request })).json();
}

async function ask(path, { fetch = globalThis.fetch, signal, request = {} }) {
  let response;
  try {
    response = await fetch(`api/${path}`, { ...request, signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new AskError("The dashboard’s own server doesn’t answer.", 0);
  }
  if (!response.ok) throw new AskError(await messageOf(response), response.status);
  return response;
}

async function messageOf(response) {
  try {
    return (await response.json()).error.message;
  } catch {
    return `The server answered ${response.status}.`;
  }
}
