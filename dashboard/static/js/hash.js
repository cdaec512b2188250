/** What the reader looks at, in the URL's hash: `#requests?id=r-1&sort=ttft`. */

/** @returns {{name: string, params: URLSearchParams}} */
export function parseHash(hash) {
  const [name, query = ""] = hash.replace(/^#/, "").split(/\?(.*)/s);
  return { name, params: new URLSearchParams(query) };
}

/** @param {URLSearchParams} params none leave the name alone */
export function formatHash(name, params) {
  const query = params.toString();
  return query ? `#${name}?${query}` : `#${name}`;
}
