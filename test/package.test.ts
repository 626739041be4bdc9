import { execFile } from 'node:child_process'
import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, relative, sep } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import t from 'tap'

const root = fileURLToPath(new URL('..', import.meta.url))
const run = promisify(execFile)

/** Without what the test runner and an outer npm put into it. */
const env: NodeJS.ProcessEnv = { ...process.env }
delete env.NODE_V8_COVERAGE
delete env.npm_config_local_prefix

// `env`, for the test runner adds its loader to any child
const node = async (folder: string, ...args: string[]): Promise<string> =>
  (await run('env', ['-u', 'NODE_OPTIONS', process.execPath, ...args], { cwd: folder, env })).stdout
const npm = async (folder: string, ...args: string[]): Promise<string> =>
  (await run('env', ['-u', 'NODE_OPTIONS', 'npm', ...args], { cwd: folder, env })).stdout

/** An empty project outside the repository, or its node_modules would serve the imports. */
const project = mkdtempSync(join(tmpdir(), 'hourly-sync-package-'))
t.teardown(() => rmSync(project, { recursive: true, force: true }))

const lock = JSON.parse(readFileSync(join(root, 'package-lock.json'), 'utf8'))
/** The version this repository has, which npm's cache holds. */
const pinned = (name: string): string => `${name}@${lock.packages[`node_modules/${name}`].version}`

await npm(root, 'pack', '--silent', '--ignore-scripts', '--pack-destination', project) // `npm test` has built it
const tarball = readdirSync(project).find(file => file.endsWith('.tgz'))!
writeFileSync(join(project, 'package.json'), JSON.stringify({ name: 'host', private: true }))
await npm(project, 'install', '--prefer-offline', '--no-audit', '--no-fund', '--loglevel=error', `./${tarball}`,
  ...['fastify', '@fastify/postgres', 'pg', 'typescript', '@types/node'].map(pinned))
const installed = join(project, 'node_modules', 'fastify-hourly-sync')
const hosts = join(root, 'test', 'fixtures', 'hosts')

t.test('the tarball has the built files and the documents, and nothing else', async t => {
  const files = readdirSync(installed, { recursive: true, withFileTypes: true }).filter(entry => entry.isFile())
    .map(entry => relative(installed, join(entry.parentPath, entry.name)).split(sep).join('/'))
  const others = files.filter(file => !/^(package\.json|README\.md|LICENSE|CHANGELOG\.md)$/.test(file))
  t.ok(files.includes('dist/index.js') && files.includes('dist/index.d.ts') && files.includes('LICENSE'))
  const assets = readdirSync(join(root, 'lib', 'http', 'assets')).map(asset => `dist/lib/http/assets/${asset}`)
  t.strictSame(others.filter(file => file.includes('/assets/')).sort(), assets.sort(), 'what the dashboard loads is in it as it is')
  for (const file of others.filter(file => !assets.includes(file))) {
    const source = /^dist\/((?:index|cli|testing|lib\/.+)\.)(?:js|d\.ts)$/.exec(file)?.[1]
    t.ok(source !== undefined && existsSync(join(root, `${source}ts`)), `${file} is built from a source`)
  }
})

const loaded = { type: 'function', same: true, exports: ['function', 'function', 'function', 'function'], names: ['order-sync'], asset: 200 }

for (const file of ['import.mjs', 'require.cjs']) {
  t.test(`${file}: gives the plugin function itself, which registers`, async t => {
    cpSync(join(hosts, file), join(project, file))
    t.strictSame(JSON.parse(await node(project, file)), loaded)
  })
}

interface Host { type: 'module' | 'commonjs', settings: Record<string, unknown>, files: string[] }

/** A project inside the project, with a host and its settings. Gives its folder. */
function host (name: string, { type, settings, files }: Host): string {
  const folder = join(project, name)
  mkdirSync(folder)
  for (const file of files) cpSync(join(hosts, file), join(folder, file))
  writeFileSync(join(folder, 'package.json'), JSON.stringify({ type }))
  // libraries are checked too: their declaration files, ours among them, have to resolve
  const compilerOptions = { target: 'es2022', strict: true, skipLibCheck: false, types: ['node'], ...settings }
  writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify({ compilerOptions, files }))
  return folder
}

const tsc = join(project, 'node_modules', 'typescript', 'bin', 'tsc')
const registered = { names: ['order-sync'], started: false, transient: 'FST_HOURLY_SYNC_TRANSIENT' }

t.jobs = 2 // of the compilers

t.test('an ESM host in TypeScript under module node16 type-checks, and runs', { buffered: true }, async t => {
  const folder = host('node16', { type: 'module', settings: { module: 'node16' }, files: ['host.ts'] })
  t.equal(await node(folder, tsc), '')
  t.strictSame(JSON.parse(await node(folder, 'host.js')), registered)
})

t.test('an ESM host in TypeScript under moduleResolution bundler type-checks, and runs', { buffered: true }, async t => {
  const folder = host('bundler', { type: 'module', settings: { module: 'esnext', moduleResolution: 'bundler' }, files: ['host.ts'] })
  t.equal(await node(folder, tsc), '')
  t.strictSame(JSON.parse(await node(folder, 'host.js')), registered)
})

t.test('a CommonJS host in TypeScript under module nodenext type-checks, and runs, with `import from` and with `import = require()`', { buffered: true }, async t => {
  const folder = host('nodenext', { type: 'commonjs', settings: { module: 'nodenext' }, files: ['host.ts', 'import-equals.ts'] })
  t.equal(await node(folder, tsc), '')
  t.strictSame(JSON.parse(await node(folder, 'host.js')), registered)
  t.strictSame(JSON.parse(await node(folder, 'import-equals.js')), { type: 'function', message: 'later', sql: true })
})

t.test('a CommonJS host in TypeScript under module node16 is told that it cannot require ESM', { buffered: true }, async t => {
  const folder = host('refused', { type: 'commonjs', settings: { module: 'node16', skipLibCheck: true, noEmit: true }, files: ['host.ts'] })
  const complaint = await node(folder, tsc).catch(error => error.stdout)
  t.match(complaint, /TS1479/)
})
