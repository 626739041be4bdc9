/** The value that so large a part of them is not above. */
export function quantile (values: number[], part: number): number {
  const sorted = values.toSorted((a, b) => a - b)
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))]!
}

export function median (values: number[]): number {
  return quantile(values, 0.5)
}
