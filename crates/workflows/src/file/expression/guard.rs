//! Guards in expressions: they count steps, sizes and depth, and end what passes a limit.
//!
//! The syntax tree is rewritten so that a guard stands
//! - before every call, every body of `reduce` and `foreach` and every side of `,` (`!step`): whatever
//!   repeats or descends, in jq, is made of these;
//! - after every filter of the interpreter, every `..`, `.[]` and every operator that makes a larger
//!   value (`!size`): there the value that was made is charged by its length;
//! - after every constructor and every update (`!measure`): only these can put a value into a value
//!   twice, so that it is small in memory and huge when it is walked; there it is walked, up to the limit.
//!
//! Multiplication may repeat a text, so it is a filter of its own that looks first (`!multiply`).
//! Names with `!` can't be written in jq. A guard that finds a limit passed halts the program, which
//! `try` can't catch.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use holdpoint_state::json;
use jaq_core::box_iter::box_once;
use jaq_core::load::lex::StrPart;
use jaq_core::load::parse::{BinaryOp, Def, Pattern, Term};
use jaq_core::native::{Fun, v};
use jaq_core::ops::Math;
use jaq_core::path::{Part, Path};
use jaq_core::{Error, Exn, Native, ValX};
use jaq_json::{Num, Val};

use super::value;
use super::{DEPTH_MAX, Data, EvaluationError, SIZE_MAX, STACK_MAX_BYTES};

/// Filters that see or touch the machine. They and what is defined by them do not exist here.
pub(super) const IMPURE: [&str; 13] = [
    "debug",
    "debug_empty",
    "env",
    "halt",
    "halt_error",
    "input",
    "input_filename",
    "inputs",
    "localtime",
    "now",
    "stderr",
    "stderr_empty",
    "strflocaltime",
];

const STEP: &str = "!step";
const SIZE: &str = "!size";
const MEASURE: &str = "!measure";
const MULTIPLY: &str = "!multiply";
const FROM_JSON: &str = "fromjson";

struct Meter {
    steps_left: Cell<u64>,
    /// The address of a local variable at the bottom of the stack.
    stack_base: Cell<usize>,
    has_passed: Cell<bool>,
    passed: RefCell<Option<EvaluationError>>,
    stop: RefCell<Option<Arc<AtomicBool>>>,
}

thread_local! {
    static METER: Meter = const {
        Meter {
            steps_left: Cell::new(0),
            stack_base: Cell::new(0),
            has_passed: Cell::new(false),
            passed: RefCell::new(None),
            stop: RefCell::new(None),
        }
    };
}

/// Begins an evaluation of at most `steps` steps on this thread; it ends soon after `stop` is set.
pub(super) fn begin(steps: u64, stop: Arc<AtomicBool>) {
    METER.with(|meter| {
        meter.steps_left.set(steps);
        meter.stack_base.set(stack_address());
        meter.has_passed.set(false);
        meter.passed.replace(None);
        meter.stop.replace(Some(stop));
    });
}

/// The limit that the evaluation on this thread has passed.
pub(super) fn passed() -> Option<EvaluationError> {
    METER.with(|meter| meter.passed.borrow().clone())
}

/// Where the stack is now. The stack of a thread is one piece of memory, so the difference of two such
/// addresses says how much of it is used between them.
#[inline(never)]
fn stack_address() -> usize {
    let here = 0_u8;
    std::ptr::from_ref(&here).addr()
}

/// Charges `cost` steps.
fn charge(cost: u64) -> Result<(), EvaluationError> {
    METER.with(|meter| {
        let left = meter.steps_left.get();
        if meter.has_passed.get() {
            return Err(meter
                .passed
                .borrow()
                .clone()
                .unwrap_or(EvaluationError::Steps));
        }
        if left < cost {
            return Err(pass(meter, EvaluationError::Steps));
        }
        if STACK_MAX_BYTES < meter.stack_base.get().abs_diff(stack_address()) {
            return Err(pass(meter, EvaluationError::Stack));
        }
        let stopped = |stop: &Arc<AtomicBool>| stop.load(Ordering::Relaxed);
        if left % 256 < cost && meter.stop.borrow().as_ref().is_some_and(stopped) {
            return Err(pass(meter, EvaluationError::Time));
        }
        meter.steps_left.set(left - cost);
        Ok(())
    })
}

fn pass(meter: &Meter, limit: EvaluationError) -> EvaluationError {
    meter.has_passed.set(true);
    meter.passed.borrow_mut().get_or_insert(limit).clone()
}

fn fail(limit: EvaluationError) -> EvaluationError {
    METER.with(|meter| pass(meter, limit))
}

/// The size of a value without what it holds, in pieces of 16 bytes.
fn own_size(value: &Val) -> u64 {
    let pieces = match value {
        Val::Null | Val::Bool(_) | Val::Num(Num::Int(_) | Num::Float(_)) => 0,
        Val::Num(Num::BigInt(integer)) => {
            usize::try_from(integer.bits() / 128).unwrap_or(usize::MAX)
        }
        Val::Num(Num::Dec(decimal)) => decimal.len() / 16,
        Val::BStr(bytes) | Val::TStr(bytes) => bytes.len() / 16,
        Val::Arr(items) => items.len(),
        Val::Obj(fields) => fields.len().saturating_mul(2),
    };
    1 + pieces as u64
}

/// What making a value of this size costs in steps: all values of an evaluation together hold
/// at most 8 such pieces for each step, half a gigabyte.
fn cost(size: u64) -> u64 {
    1 + size / 8
}

fn step(value: Val) -> ValX<'static, Val> {
    charge(1).map_err(halt)?;
    Ok(value)
}

fn size(value: Val) -> ValX<'static, Val> {
    let size = own_size(&value);
    if SIZE_MAX < size {
        return Err(halt(fail(EvaluationError::Size)));
    }
    charge(cost(size)).map_err(halt)?;
    Ok(value)
}

/// Walks a value and checks its size and depth.
pub(super) fn measure(value: &Val) -> Result<(), EvaluationError> {
    fn walk(value: &Val, depth: usize, total: &mut u64) -> Result<(), EvaluationError> {
        if DEPTH_MAX < depth {
            return Err(EvaluationError::Depth);
        }
        *total += own_size(value);
        if SIZE_MAX < *total {
            return Err(EvaluationError::Size);
        }
        match value {
            Val::Null | Val::Bool(_) | Val::Num(_) | Val::BStr(_) | Val::TStr(_) => Ok(()),
            Val::Arr(items) => items
                .iter()
                .try_for_each(|item| walk(item, depth + 1, total)),
            Val::Obj(fields) => fields.iter().try_for_each(|(key, field)| {
                walk(key, depth + 1, total)?;
                walk(field, depth + 1, total)
            }),
        }
    }
    let mut total = 0;
    walk(value, 0, &mut total).map_err(fail)?;
    charge(cost(total))
}

fn measured(value: Val) -> ValX<'static, Val> {
    measure(&value).map_err(halt)?;
    Ok(value)
}

/// How many bits the product of two integers may have; multiplying larger ones takes long.
const PRODUCT_BITS_MAX: u64 = 16 * 1024;

/// `left * right`, unless it would repeat a text too often or make a huge integer.
fn multiply(left: Val, right: Val) -> ValX<'static, Val> {
    let bits = |value: &Val| match value {
        Val::Num(Num::BigInt(integer)) => integer.bits(),
        _ => 0,
    };
    if PRODUCT_BITS_MAX < bits(&left).saturating_add(bits(&right)) {
        return Err(halt(fail(EvaluationError::Size)));
    }
    let repeated = match (&left, &right) {
        (text @ (Val::TStr(_) | Val::BStr(_)), Val::Num(times))
        | (Val::Num(times), text @ (Val::TStr(_) | Val::BStr(_))) => Some((own_size(text), times)),
        _ => None,
    };
    if let Some((size, times)) = repeated {
        let times = match times {
            Num::Int(times) => u64::try_from(*times).unwrap_or(0),
            Num::BigInt(_) => u64::MAX,
            // The interpreter repeats by integers only, and says so.
            Num::Float(_) | Num::Dec(_) => 0,
        };
        if SIZE_MAX <= size.saturating_mul(times) {
            return Err(halt(fail(EvaluationError::Size)));
        }
    }
    measured((left * right).map_err(Exn::from)?)
}

/// Reads a text by the rules of [`holdpoint_state::json`].
fn from_json(text: &Val) -> ValX<'static, Val> {
    let (Val::TStr(bytes) | Val::BStr(bytes)) = text else {
        let error = Error::str(format_args!("fromjson needs a text, not {text}"));
        return Err(Exn::from(error));
    };
    match json::parse(bytes) {
        Ok(value) => measured(value::from_json(&value)),
        Err(error) => Err(Exn::from(Error::str(error))),
    }
}

/// Ends the program. What passed is in the meter, so the exit code says nothing.
fn halt(_passed: EvaluationError) -> Exn<'static, Val> {
    Exn::halt(1)
}

/// A guard as a filter: the identity, also in paths and updates.
macro_rules! identity {
    ($name:expr, $check:path) => {
        (
            $name,
            v(0),
            Native::new(|cv| box_once($check(cv.1)))
                .with_paths(|cv| {
                    let (value, path) = cv.1;
                    box_once($check(value).map(|value| (value, path)))
                })
                .with_update(|cv, update| match $check(cv.1) {
                    Ok(value) => update(value),
                    Err(halted) => box_once(Err(halted)),
                }),
        )
    };
}

/// All filters of the interpreter that an expression may call, and the guards.
pub(super) fn filters() -> impl Iterator<Item = Fun<Data>> {
    let guards: [Fun<Data>; 5] = [
        // The interpreter's own descends without a limit.
        (
            FROM_JSON,
            v(0),
            Native::new(|cv| box_once(from_json(&cv.1))),
        ),
        identity!(STEP, step),
        identity!(SIZE, size),
        identity!(MEASURE, measured),
        (
            MULTIPLY,
            v(2),
            // The arguments come in the order in which jq evaluates them: the right side first.
            Native::new(|mut cv| {
                let left = cv.0.pop_var();
                let right = cv.0.pop_var();
                box_once(multiply(left, right))
            }),
        ),
    ];
    pure_filters().chain(guards)
}

fn pure_filters() -> impl Iterator<Item = Fun<Data>> {
    jaq_core::funs()
        .chain(jaq_std::funs())
        .chain(jaq_json::funs())
        .filter(|(name, ..)| !IMPURE.contains(name) && *name != FROM_JSON)
}

/// Whether a call could reach a filter of the interpreter.
fn is_native(name: &str, arguments: usize) -> bool {
    static NATIVE: OnceLock<Vec<(&'static str, usize)>> = OnceLock::new();
    NATIVE
        .get_or_init(|| {
            filters()
                .map(|(name, arguments, _)| (name, arguments.len()))
                .collect()
        })
        .contains(&(name, arguments))
}

/// The definitions of the library that an expression may call.
pub(super) fn library() -> impl Iterator<Item = Def<&'static str>> {
    jaq_core::defs()
        .chain(jaq_std::defs())
        .chain(jaq_json::defs())
        .filter(|definition| !IMPURE.contains(&definition.name))
}

/// A definition with guards.
pub(super) fn definition(definition: Def<&str>) -> Def<&str> {
    Def {
        name: definition.name,
        args: definition.args,
        body: term(definition.body),
    }
}

fn call(name: &'static str) -> Term<&'static str> {
    Term::Call(name, Vec::new())
}

fn pipe<'s>(left: Term<&'s str>, right: Term<&'s str>) -> Term<&'s str> {
    Term::BinOp(Box::new(left), BinaryOp::Pipe(None), Box::new(right))
}

fn before(term: Term<&str>) -> Term<&str> {
    pipe(call(STEP), term)
}

fn after<'s>(term: Term<&'s str>, guard: &'static str) -> Term<&'s str> {
    pipe(term, call(guard))
}

#[expect(clippy::boxed_local, reason = "the tree has boxes, and gets one back")]
fn boxed(inner: Box<Term<&str>>) -> Box<Term<&str>> {
    Box::new(term(*inner))
}

/// A term with guards.
pub(super) fn term(given: Term<&str>) -> Term<&str> {
    match given {
        Term::Id | Term::Num(_) | Term::Var(_) | Term::Break(_) | Term::Arr(None) => given,
        Term::Recurse => after(Term::Recurse, SIZE),
        Term::Str(format, parts) => {
            let parts = parts.into_iter().map(|part| match part {
                StrPart::Term(inner) => StrPart::Term(term(inner)),
                StrPart::Str(_) | StrPart::Char(_) => part,
            });
            after(Term::Str(format, parts.collect()), SIZE)
        }
        Term::Arr(Some(inner)) => after(Term::Arr(Some(boxed(inner))), MEASURE),
        Term::Obj(fields) => {
            let fields = fields
                .into_iter()
                .map(|(key, value)| (term(key), value.map(term)));
            after(Term::Obj(fields.collect()), MEASURE)
        }
        Term::Neg(inner) => Term::Neg(boxed(inner)),
        Term::BinOp(left, operator, right) => operation(*left, operator, *right),
        Term::Label(name, inner) => Term::Label(name, boxed(inner)),
        Term::Fold(name, source, pattern, bodies) => Term::Fold(
            name,
            Box::new(after(term(*source), STEP)),
            self::pattern(pattern),
            bodies.into_iter().map(|body| before(term(body))).collect(),
        ),
        Term::TryCatch(inner, catch) => Term::TryCatch(boxed(inner), catch.map(boxed)),
        Term::IfThenElse(cases, otherwise) => Term::IfThenElse(
            cases
                .into_iter()
                .map(|(condition, then)| (term(condition), term(then)))
                .collect(),
            otherwise.map(boxed),
        ),
        Term::Def(definitions, inner) => Term::Def(
            definitions.into_iter().map(definition).collect(),
            boxed(inner),
        ),
        Term::Call(name, arguments) => {
            let native = is_native(name, arguments.len());
            let called = Term::Call(name, arguments.into_iter().map(term).collect());
            // Nothing may follow a call of a definition, or it would not be a tail call any more.
            before(if native { after(called, SIZE) } else { called })
        }
        Term::Path(inner, Path(parts)) => {
            let repeats = parts
                .iter()
                .any(|(part, _)| matches!(part, Part::Range(None, None)));
            let parts = parts.into_iter().map(|(part, optional)| {
                let part = match part {
                    Part::Index(index) => Part::Index(term(index)),
                    Part::Range(from, to) => Part::Range(from.map(term), to.map(term)),
                };
                (part, optional)
            });
            let path = Term::Path(boxed(inner), Path(parts.collect()));
            if repeats { after(path, SIZE) } else { path }
        }
    }
}

fn operation<'s>(
    left: Term<&'s str>,
    operator: BinaryOp<&'s str>,
    right: Term<&'s str>,
) -> Term<&'s str> {
    let make = |left, operator, right| Term::BinOp(Box::new(left), operator, Box::new(right));
    let (left, right) = (term(left), term(right));
    match operator {
        BinaryOp::Pipe(pattern) => make(left, BinaryOp::Pipe(pattern.map(self::pattern)), right),
        BinaryOp::Comma => make(before(left), BinaryOp::Comma, before(right)),
        BinaryOp::Alt | BinaryOp::Or | BinaryOp::And | BinaryOp::Cmp(_) => {
            make(left, operator, right)
        }
        BinaryOp::Math(Math::Mul) => Term::Call(MULTIPLY, vec![right, left]),
        BinaryOp::Math(_) => after(make(left, operator, right), SIZE),
        // `l *= r` is `r as $x | l |= . * $x`.
        BinaryOp::UpdateMath(Math::Mul) => {
            let factor = "$!factor";
            let product = Term::Call(MULTIPLY, vec![Term::Var(factor), Term::Id]);
            let update = after(make(left, BinaryOp::Update, product), MEASURE);
            make(right, BinaryOp::Pipe(Some(Pattern::Var(factor))), update)
        }
        BinaryOp::Assign | BinaryOp::Update | BinaryOp::UpdateMath(_) | BinaryOp::UpdateAlt => {
            after(make(left, operator, right), MEASURE)
        }
    }
}

fn pattern(given: Pattern<&str>) -> Pattern<&str> {
    match given {
        Pattern::Var(_) => given,
        Pattern::Arr(items) => Pattern::Arr(items.into_iter().map(pattern).collect()),
        Pattern::Obj(fields) => Pattern::Obj(
            fields
                .into_iter()
                .map(|(key, value)| (term(key), pattern(value)))
                .collect(),
        ),
    }
}
