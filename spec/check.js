// Checks every choice of a page, not samples: all states that it reaches within a number of steps, nearest first. So the
// first violation is one with the fewest steps, and "none" means that there is none within this depth.
//
//   node check.js QUINT PAGE DEPTH [MODULE]  MODULE: of bugs/PAGE.qnt. Without it, the page with all of its rules
//
// QUINT: the installed package. It simulates: `any` and `oneOf` ask for random numbers, and it has no interface for more.
// Here they ask for the next choice of a script. A script that has been played is continued with the choice that follows
// it, as an odometer counts, until all have been played. For this two functions of Quint are overridden:
//
// - `any` plays the action that it chose and no other. Quint would go on to the next one if that is disabled, which would
//   reach the same states by many scripts. (`all` need not restore what it has changed: a disabled script is given up.)
// - `oneOf` chooses when its value is first read. Quint chooses before, so an action would be played once for every value
//   that it never reads. Nor is a value tried again if what follows is disabled.
//
// A page may have a step with fewer choices for this, `everyStep`, and a `view`: states with the same view are the same.
const fs = require('fs')
const crypto = require('crypto')
const [quint, page, depth, instance = `${page}Rules`] = process.argv.slice(2)
const library = path => require(`${quint}/dist/src/${path}`)
const either = require(require.resolve('@sweet-monads/either', { paths: [quint] }))
require('./faster')(quint)

const builtins = library('runtime/impl/builtins')
const nondet = library('runtime/impl/nondet')
const { rv } = library('runtime/impl/runtimeValue')
const [YES, NO] = [true, false].map(value => either.right(rv.mkBool(value)))

/** The script that is played: which choice of how many was made, in order, and how many are made by now. */
let script = []
let made = 0

function choose(number) {
  if (made === script.length) script.push({ choice: 0, of: number })
  return script[made++].choice
}

/** Whether there is another script, which begins as far as possible like this one. */
function nextScript() {
  while (script.length > 0 && script.at(-1).choice + 1 === script.at(-1).of) script.pop()
  if (script.length === 0) return false
  script.at(-1).choice += 1
  return true
}

const lazyBuiltin = builtins.lazyBuiltinLambda
builtins.lazyBuiltinLambda = name => {
  if (name === 'actionAny') return (context, actions) => actions[choose(actions.length)](context)
  return lazyBuiltin(name === 'actionAll' ? 'and' : name)
}

nondet.evalNondet = (_name, chosen, evalSet, evalBody) => {
  let set, value
  Object.defineProperty(chosen, 'value', {
    get: () => (value ??= set.pick(set.bounds().map(bound => BigInt(choose(Number(bound.value)))).values()))
  })
  return context => evalSet(context).chain(values => {
    if (values.cardinality().value === 0n) return NO
    const outer = [set, value];
    [set, value] = [values, undefined]
    const result = evalBody(context);
    [set, value] = outer
    return result
  })
}

// Only now, so that they use what is overridden.
const { load, parse } = library('cliCommands')
const { toExpr } = library('cliHelpers')
const { buildExpr } = library('runtime/impl/builder')
const { Evaluator } = library('runtime/impl/evaluator')
const { noExecutionListener } = library('runtime/trace')

const texts = new WeakMap()
/** The same text for the same value. States share most of their values. */
function text(value) {
  if (!texts.has(value)) texts.set(value, textOf(value))
  return texts.get(value)
}

function textOf(value) {
  if (value.label !== undefined) return `${value.label}(${text(value.value)})`
  if (value.list) return `[${value.list.map(text).join()}]`
  if (value.map) {
    // The keys of a record are texts, those of a map values.
    const entries = value.map.entrySeq().map(([key, it]) => `${typeof key === 'string' ? key : text(key)}:${text(it)}`)
    return `{${entries.toArray().sort().join()}}`
  }
  if (value.isSetLike) return `<${value.toSet().map(text).toArray().sort().join()}>`
  return typeof value.value === 'string' ? JSON.stringify(value.value) : String(value.value)
}

const textOfPage = fs.readFileSync(`${page}.qnt`, 'utf8')
const names = pattern => [...textOfPage.matchAll(pattern)].map(match => match[1])
const has = definition => textOfPage.includes(`\n  ${definition} =`)

/** A page, and the state that it is in. */
class Page {
  constructor(parsed) {
    const choices = { next: () => 0n, getState: () => 0n, setState: () => {} }
    const evaluator = new Evaluator(parsed.resolver.table, noExecutionListener, choices, false)
    this.context = evaluator.ctx
    this.variables = evaluator.ctx.varStorage
    const compile = source => {
      const expression = toExpr(parsed, source)
      if (expression.isLeft()) throw new Error(`${source}: ${JSON.stringify(expression.value)}`)
      return buildExpr(evaluator.builder, expression.value)
    }
    this.init = compile('init')
    this.step = compile(has('action everyStep') ? 'everyStep' : 'step')
    this.view = has('val view') && compile('view')
    this.invariants = names(/(?<=^ {2}\/\/\/ .*\n) {2}val (\w+)/gm).map(name => [name, compile(name)])
  }

  value(compiled) {
    const result = compiled(this.context)
    if (result.isLeft()) throw new Error(`${result.value.code}: ${result.value.message}`)
    return result.value
  }

  /** Plays the script: whether it is enabled, and then the page is in the state that it leads to. */
  play(action) {
    made = 0
    if (!this.value(action).toBool()) return false
    this.variables.shiftVars()
    return true
  }

  get registers() {
    return this.variables.vars.valueSeq().toArray()
  }

  get state() {
    return this.registers.map(register => register.value)
  }

  set state(values) {
    this.variables.reset()
    this.registers.forEach((register, i) => { register.value = values[i] })
    this.variables.clearCaches()
  }

  /** What tells this state from others. */
  get key() {
    const parts = this.view ? [this.value(this.view)] : this.state.map(value => value.value)
    return crypto.createHash('md5').update(parts.map(text).join('\n')).digest('latin1')
  }

  violated() {
    const found = this.invariants.find(([, compiled]) => !this.value(compiled).toBool())
    return found && found[0]
  }

  /** The states that one step leads to: `visit` is called in each, and says whether that is enough. */
  eachAfter(state, step, visit) {
    script = []
    do {
      this.state = state
      if (this.play(step) && visit()) return true
    } while (nextScript())
    return false
  }

  /** The first state and the steps to another one, each with the variables that it changes. */
  describe(node) {
    const scripts = []
    for (let at = node; at; at = at.parent) scripts.unshift(at.script)
    let before
    for (const [i, choices] of scripts.entries()) {
      script = choices.map(choice => ({ choice, of: choice + 1 }))
      this.play(i === 0 ? this.init : this.step)
      console.log(`step ${i}:`)
      this.registers.forEach(({ name, value }, j) => {
        if (text(value.value) !== (before && text(before[j].value)))
          console.log(`  ${name.split('::').pop()}: ${text(value.value)}`)
      })
      before = this.state
    }
  }
}

/** All states, a step further at a time, until an invariant is violated. The first step is `init`. */
function check(page) {
  const found = { states: 0, steps: 0, depth: -1, deadlocks: 0 }
  const seen = new Set()
  let level = [{ state: page.state }]
  while (level.length > 0 && found.depth < depth) {
    found.depth += 1
    const next = []
    for (const { state, node } of level) {
      let isEnabled = false
      const isViolated = page.eachAfter(state, found.depth === 0 ? page.init : page.step, () => {
        isEnabled = true
        found.steps += 1
        const reached = { parent: node, script: script.map(({ choice }) => choice) }
        // Before states are compared: an invariant may be about the step.
        found.violated = page.violated()
        found.node = reached
        if (found.violated) return true
        const key = page.key
        if (seen.has(key)) return false
        seen.add(key)
        found.states += 1
        next.push({ state: page.state, node: reached })
        return false
      })
      if (isViolated) return found
      if (!isEnabled) found.deadlocks += 1
    }
    level = next
  }
  return { ...found, isComplete: level.length === 0 }
}

async function main() {
  const input = `bugs/${page}.qnt`
  const args = { input, main: instance, backend: 'typescript', init: 'init', step: 'step', invariants: [], verbosity: 0 }
  // Types are left to simulate.js: checking them takes a second.
  const parsed = await (await load(args)).asyncChain(parse)
  if (parsed.isLeft()) throw new Error(JSON.stringify(parsed.value.stage.errors, null, 1))
  const began = Date.now()
  const it = new Page({ ...parsed.value, args })
  const { states, steps, depth, violated, node, isComplete, deadlocks } = check(it)
  const cost = `${states} states, ${steps} steps, ${Math.round((Date.now() - began) / 1000)} s`
  if (violated) {
    it.describe(node)
    console.log(`spec: ${instance}: ${violated} is violated after ${depth} steps (${cost})`)
    process.exitCode = instance === `${page}Rules` ? 1 : 0
  } else {
    const extent = isComplete ? `all states, ${depth - 1} steps deep` : `all choices of ${depth} steps`
    console.log(`spec: ${instance}: no violation in ${extent} (${cost}, ${deadlocks} deadlocks)`)
    process.exitCode = instance === `${page}Rules` ? 0 : 1
  }
}

main().catch(error => {
  console.error(`spec: ${page}: FAILED: ${error.stack}`)
  process.exitCode = 1
})
