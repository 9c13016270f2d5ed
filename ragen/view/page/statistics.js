// Student's interval over a few seeds, as in ragen/algorithms/statistics.py.
const Z = 1.959964;
const T = [
  12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
  2.201, 2.179, 2.16, 2.145, 2.131, 2.12, 2.11, 2.101, 2.093, 2.086,
]; // 97.5 % quantiles with 1, 2, ... degrees of freedom

export function tQuantile(degrees) {
  return T[degrees - 1] ?? Z + (Z ** 3 + Z) / (4 * degrees) + (5 * Z ** 5 + 16 * Z ** 3 + 3 * Z) / (96 * degrees ** 2);
}

export const mean = (values) => values.reduce((a, b) => a + b, 0) / values.length;

// {mean, low, high} of independent values; without ends for a single one. A range cuts the ends to what can be.
export function student(values, [least, most] = [-Infinity, Infinity]) {
  const centre = mean(values);
  if (values.length < 2) return { mean: centre, low: null, high: null };
  const variance = values.reduce((sum, value) => sum + (value - centre) ** 2, 0) / (values.length - 1);
  const half = tQuantile(values.length - 1) * Math.sqrt(variance / values.length);
  return { mean: centre, low: Math.max(least, centre - half), high: Math.min(most, centre + half) };
}
