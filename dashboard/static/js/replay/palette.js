/** Colours on canvas: those of the page's style, and one per request that is the same everywhere. */

const GOLDEN_ANGLE = 137.508;

/** Reads custom properties once per colour scheme; reading them in every frame would cost more than drawing. */
export class Palette extends EventTarget {
  constructor(node) {
    super();
    this._node = node;
    this._colors = new Map();
    this._scheme = matchMedia("(prefers-color-scheme: dark)");
    this._scheme.addEventListener("change", () => {
      this._colors.clear();
      this.dispatchEvent(new Event("change"));
    });
  }

  /** @param {string} name of a custom property, as in `--line` */
  get(name) {
    let color = this._colors.get(name);
    if (color === undefined) {
      color = getComputedStyle(this._node).getPropertyValue(name).trim();
      this._colors.set(name, color);
    }
    return color;
  }

  /** The colour of a request, by its number; neighbours are far apart. */
  owner(request) {
    const key = `owner ${request}`;
    let color = this._colors.get(key);
    if (color === undefined) {
      color = ownerColor(request, this._scheme.matches);
      this._colors.set(key, color);
    }
    return color;
  }
}

export function ownerColor(request, isDark) {
  if (request < 0) return isDark ? "hsl(205 12% 55%)" : "hsl(205 12% 55%)";
  const hue = (200 + request * GOLDEN_ANGLE) % 360;
  const ring = Math.floor(request / 11) % 3; // the same hue comes back in another lightness
  return isDark ? `hsl(${hue.toFixed(1)} 58% ${60 + ring * 7}%)` : `hsl(${hue.toFixed(1)} 58% ${42 + ring * 8}%)`;
}
