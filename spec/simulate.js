// Simulates the modules of a page of the specification, one after the other in one process: Quint takes seconds to
// start and to check the types of a page.
//
//   node simulate.js QUINT PAGE FILTER [FOLDER N]
//
// QUINT: the installed package. FILTER: only the modules of bugs/PAGE.qnt whose names contain it. N of the runs of the
// page with all of its rules are written to FOLDER.
const fs = require('fs')
const [quint, page, filter, folder, runs] = process.argv.slice(2)
const { load, parse, typecheck, runSimulator } = require(`${quint}/dist/src/cliCommands`)
require('./faster')(quint)

const input = `bugs/${page}.qnt`
const steps = page === 'quorum' ? 40 : 20
/** How many runs of a page. */
const RUNS = 5000
/** How many of a page without one of its rules, at most: mistakes in rarely taken branches took up to thousands. */
const RUNS_TO_VIOLATION = 50000

const names = (file, pattern) => [...fs.readFileSync(file, 'utf8').matchAll(pattern)].map(match => match[1])
const invariants = names(`${page}.qnt`, /(?<=^ {2}\/\/\/ .*\n) {2}val (\w+)/gm)

/** The name of a violated invariant is that of its module, without the page before and `Bug` behind. */
const invariantOf = name => {
  const [, first, rest] = name.slice(page.length).match(/^(.)(.*)Bug\d*$/)
  return first.toLowerCase() + rest
}

async function main() {
  const args = { input, backend: 'typescript', init: 'init', step: 'step', witnesses: [], hide: [], verbosity: 0 }
  const loaded = await load(args)
  const checked = await (await loaded.asyncChain(parse)).asyncChain(typecheck)
  if (checked.isLeft()) throw new Error(JSON.stringify(checked.value.stage.errors, null, 1))
  const simulate = (module, changes) => {
    const defaults = { ...args, main: module, invariants: [], maxSteps: steps, nTraces: 1 }
    return runSimulator({ ...checked.value, args: { ...defaults, ...changes } })
  }

  const written = folder && { nTraces: +runs, outItf: `${folder}/${page}-{seq}.itf.json` }
  for (const module of names(input, /^module (\w+)/gm).filter(name => name.includes(filter))) {
    const isBug = module !== `${page}Rules`
    const checks = isBug ? [invariantOf(module)] : invariants
    const changes = isBug ? { maxSamples: RUNS_TO_VIOLATION } : { maxSamples: RUNS, ...written }
    const result = await simulate(module, { invariants: checks, ...changes })
    const outcome = result.isRight() ? 'no violation' : result.value.msg
    if (outcome === (isBug ? 'Invariant violated' : 'no violation')) {
      console.log(isBug ? `spec: ${module}: violates ${checks}` : `spec: ${page}: ${checks.length} invariants hold`)
    } else {
      console.log(`spec: ${module}: FAILED: ${outcome} (${checks})`)
      if (result.isLeft()) {
        const seed = `0x${result.value.stage.seed.toString(16)}`
        console.log(`To see it, in spec/: ${quint}/dist/src/cli.js run ${input} --main ${module} \\`)
        console.log(`  --backend typescript --max-steps ${steps} --seed ${seed} --invariants ${checks.join(' ')}`)
      }
      process.exitCode = 1
    }
  }
}

main().catch(error => {
  console.error(`spec: ${page}: FAILED: ${error.stack}`)
  process.exitCode = 1
})
