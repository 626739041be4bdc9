import neostandard from 'neostandard'

export default neostandard({ ts: true, ignores: ['dist', '.tap', 'node_modules', 'benchmark/node_modules', 'coverage', 'test/fixtures/old-core'] })
