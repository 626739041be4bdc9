import type { TSchema } from '@sinclair/typebox'
import { type TypeCheck, TypeCompiler } from '@sinclair/typebox/compiler'
import { Value } from '@sinclair/typebox/value'

type Checked = { value: unknown } | { error: Error }

/**
 * Checks what a request brings, by TypeBox itself: the routes work in a host that has given its own routes another validator (for Zod,
 * say), which ours would inherit. Texts become numbers where those are wanted, and defaults are filled in.
 */
export function validator ({ schema, httpPart }: { schema: unknown, httpPart?: string }): (data: unknown) => Checked {
  const type = schema as TSchema
  const check: TypeCheck<TSchema> = TypeCompiler.Compile(type)
  return data => {
    const value = Value.Default(type, httpPart === 'body' ? data : withNumbers(type, data as object))
    if (check.Check(value)) return { value }
    const { path, message } = check.Errors(value).First()!
    return { error: new Error(`${String(httpPart)}${path} ${message.charAt(0).toLowerCase()}${message.slice(1)}`) }
  }
}

/** A query has only texts. */
function withNumbers ({ properties = {} }: TSchema, data: object): object {
  return Object.fromEntries(Object.entries(data).map(([name, value]) =>
    [name, properties[name]?.type === 'integer' && /^-?\d{1,15}$/.test(value) ? Number(value) : value]))
}

/** Likewise for what is answered: our own views make it, and the tests hold it against its schema. */
export function serializer (): (data: unknown) => string {
  return data => JSON.stringify(data instanceof Error ? problem(data) : data)
}

/** Fastify's own error handler hands over an error whose texts JSON does not see. */
function problem ({ statusCode, code, error, message }: Error & { statusCode?: number, code?: unknown, error?: string }): object {
  return { statusCode, code, error, message }
}
