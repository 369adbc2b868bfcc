// @ts-check
/** Addresses of views. Everything that a view shows is in its address, so that it can be sent to others. */

/** @typedef {{[name: string]: string | number | string[] | null | undefined}} Query */

/**
 * @param {string[]} path
 * @param {Query} [query]
 */
export function link(path, query = {}) {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const each of Array.isArray(value) ? value : [value]) {
      if (each !== null && each !== undefined && each !== "") search.append(name, String(each));
    }
  }
  const text = search.toString();
  const encoded = path.map((part) => encodeURIComponent(part.replace(/\p{Surrogate}/gu, "\ufffd"))); // half of a character cannot be encoded
  return `#/${encoded.join("/")}${text ? `?${text}` : ""}`;
}

/**
 * The parts of an address: `#/run/ID?q=x` is ["run", "ID"] and its query.
 * @param {string} hash
 */
export function parse(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  return { path: path.split("/").filter(Boolean).map(decode), query: new URLSearchParams(query) };
}

/** @param {string} part */
function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/**
 * All values of a query, as the server takes them.
 * @param {URLSearchParams} query
 * @returns {{[name: string]: string[]}}
 */
export function paramsOf(query) {
  /** @type {{[name: string]: string[]}} */
  const params = {};
  for (const name of new Set(query.keys())) params[name] = query.getAll(name);
  return params;
}
