/** What a saved file is called: after the engine life that it shows. */
export function shortLife(trace) {
  const life = trace.header.life.replaceAll(/[^\w-]/g, "").slice(0, 24);
  return life ? `pellucid-${life}` : "pellucid-trace";
}
