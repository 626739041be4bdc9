/** Hooks of Node's module loader. They take the types away and no more; that the types are right is for `npm run types`. */
import { existsSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'
import { transformSync } from '@swc/core'

/** A module in TypeScript is imported by the name that its build will have. */
export async function resolve (specifier, context, next) {
  if (/^\.\.?\/.*\.js$/.test(specifier) && context.parentURL !== undefined) {
    const source = new URL(specifier.replace(/js$/, 'ts'), context.parentURL)
    if (existsSync(source)) return { url: source.href, format: 'module', shortCircuit: true }
  }
  return await next(specifier, context)
}

export async function load (url, context, next) {
  if (!url.startsWith('file:') || !url.endsWith('.ts')) return await next(url, context)
  const filename = fileURLToPath(url)
  const { code } = transformSync(await readFile(filename, 'utf8'), {
    filename,
    swcrc: false,
    sourceMaps: 'inline',
    inlineSourcesContent: true, // or the report of coverage takes every line for covered
    jsc: { target: 'es2022', parser: { syntax: 'typescript' }, transform: { verbatimModuleSyntax: true } }
  })
  return { format: 'module', source: code, shortCircuit: true }
}
