// Metrics that keep every sample with its tags, and k6's statistics and thresholds over them.

export const registry = new Map();

class Metric {
  constructor(name) {
    this.name = name;
    this.samples = [];
    registry.set(name, this);
  }

  add(value, tags = {}) {
    this.samples.push({ value: Number(value), tags });
  }

  /** The samples that have a tag with this value; all of them without one. */
  matching(tag) {
    const [key, value] = tag ? tag.split(":") : [];
    return this.samples.filter((sample) => !tag || sample.tags[key] === value).map((sample) => sample.value);
  }
}

export class Trend extends Metric {
  values(tag) {
    const sorted = this.matching(tag).sort((a, b) => a - b);
    const at = (share) => {
      const place = share * (sorted.length - 1);
      const low = Math.floor(place);
      return sorted[low] + (place - low) * ((sorted[low + 1] ?? sorted[low]) - sorted[low]);
    };
    const sum = sorted.reduce((total, value) => total + value, 0);
    if (!sorted.length) {
      return { count: 0 };
    }
    return {
      count: sorted.length, min: sorted[0], avg: sum / sorted.length, med: at(0.5),
      "p(90)": at(0.9), "p(95)": at(0.95), "p(99)": at(0.99), max: sorted[sorted.length - 1],
    };
  }
}

export class Counter extends Metric {
  values(tag) {
    return { count: this.matching(tag).reduce((total, value) => total + value, 0) };
  }
}

export class Rate extends Metric {
  values(tag) {
    const samples = this.matching(tag);
    const passes = samples.filter((value) => value !== 0).length;
    return { rate: samples.length ? passes / samples.length : 0, passes, fails: samples.length - passes };
  }
}

/** The outcome of a script's thresholds by metric and rule; a rule that can't be read is an error. */
export function judge(thresholds) {
  const outcome = {};
  for (const [selector, rules] of Object.entries(thresholds)) {
    const [, name, , tag] = selector.match(/^(\w+)(\{(.+)\})?$/);
    const values = registry.get(name).values(tag);
    outcome[selector] = Object.fromEntries(
      rules.map((rule) => {
        const [, statistic, sign, bound] = rule.match(/^([\w().]+)\s*([<>])\s*([\d.]+)$/);
        const value = values[statistic];
        const ok = value === undefined || (sign === "<" ? value < Number(bound) : value > Number(bound));
        return [rule, { ok }];
      }),
    );
  }
  return outcome;
}
