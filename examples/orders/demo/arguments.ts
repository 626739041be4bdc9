import { parseArgs } from 'node:util'

export const usage = `usage: npm run demo [-- --slots <n>]

Starts a PostgreSQL, an order service and two web servers that share one sync with a slot of 20 seconds.
Ctrl-C ends it.

  --slots <n>  end by itself after <n> full slots (1 to 100); exit code 0 only if each had exactly one
               succeeded run and the orders in PostgreSQL then equal those of the service
  --help       print this`

/** What the command line asks for. Throws an error with a message for the user. */
export function readArguments (argv: string[]): { help: boolean, slots: number | null } {
  const { values } = parseArgs({
    args: argv,
    options: { slots: { type: 'string' }, help: { type: 'boolean', short: 'h' } }
  })
  const { slots } = values
  if (slots !== undefined && !/^([1-9]\d?|100)$/.test(slots)) {
    throw new TypeError(`--slots should be a whole number from 1 to 100, instead got '${slots}'`)
  }
  return { help: values.help ?? false, slots: slots === undefined ? null : Number(slots) }
}
