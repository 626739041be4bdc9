type Environment = Record<string, string | undefined>

/** A variable, or its default when it is absent or empty. */
export function textIn (env: Environment, name: string, byDefault: string): string {
  const value = env[name]
  return value === undefined || value === '' ? byDefault : value
}

/** A number of zero or more. A typing error must not become a default. */
export function numberIn (env: Environment, name: string, byDefault: number): number {
  const text = textIn(env, name, String(byDefault))
  const value = Number(text)
  if (!Number.isFinite(value) || value < 0) throw new TypeError(`${name} should be a number of zero or more, instead got '${text}'`)
  return value
}
