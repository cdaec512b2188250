/** A request as a line for a POSIX shell. */

/** Quote for a shell: nothing inside single quotes is special but the single quote. */
export function shellQuote(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

/**
 * @param {string} url
 * @param {object} body sent as JSON
 * @param {{keyVariable?: string, indent?: number}} [options] keyVariable adds an authorization header with that variable in
 *   place of the key; indent 0 writes the body on one line
 */
export function toCurl(url, body, { keyVariable = "", indent = 2 } = {}) {
  const lines = [`curl -N ${shellQuote(url)}`, `-H 'content-type: application/json'`];
  if (keyVariable) lines.push(`-H "authorization: Bearer $${keyVariable}"`);
  lines.push(`-d ${shellQuote(JSON.stringify(body, null, indent))}`);
  return lines.join(" \\\n  ");
}
