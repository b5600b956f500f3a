//! jq expressions of workflow files, evaluated by jaq within limits.
//!
//! An expression is a pure function: it sees `.`, `$input`, `$outputs`, `$results`, `$run` and `$settings` and nothing
//! of the machine. The filters `now`, `localtime`, `strflocaltime`, `env`, `halt`, `debug` and `stderr` do
//! not exist, and neither do modules. It must give exactly one value.
//!
//! A hostile expression can't hang or kill the engine. Before it is compiled, the expression and the
//! library that it calls are rewritten so that every call, every repetition and every growing value
//! passes a guard (`guard`), which counts steps, sizes and the depth of the stack. Evaluation has
//! its own thread with a large stack, and the caller waits for it at most [`TIME_MAX`]: the few filters
//! that work long without passing a guard (a regular expression, a search in a long text) can cost
//! a processor for a while, but not the engine.

mod guard;
mod value;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use holdpoint_state::json;
use jaq_core::data::JustLut;
use jaq_core::load::parse::{Def, Term};
use jaq_core::load::{self, Arena, File, Loader};
use jaq_core::{Compiler, Ctx, Vars};
use jaq_json::Val;
use serde_json::Value;

use crate::definition::NodeContext;

/// How long an expression may be, in bytes.
pub const TEXT_MAX_BYTES: usize = 16 * 1024;

/// How many guarded steps an evaluation may make.
pub const STEPS_MAX: u64 = 4_000_000;

/// How many values and 16-byte pieces of text one value may hold.
pub const SIZE_MAX: u64 = 4_000_000;

/// How deep a value may nest.
pub const DEPTH_MAX: usize = 100;

/// How long an evaluation may take.
pub const TIME_MAX: Duration = Duration::from_secs(10);

/// Address space for the stack of an evaluation; the system gives memory for what is used.
const STACK_BYTES: usize = 512 * 1024 * 1024;

/// How much of it calls may use. The rest is for what runs and is dropped between two guards.
const STACK_MAX_BYTES: usize = 128 * 1024 * 1024;

/// The variables of an expression, in the order of their values.
const VARIABLES: [&str; 5] = ["$input", "$outputs", "$results", "$run", "$settings"];

/// The name of the guarded expression in the program, and the call of it.
const MAIN: &str = "holdpoint_main";
const MAIN_CALL: &str = "holdpoint_main($input; $outputs; $results; $run; $settings)";

type Data = JustLut<Val>;

/// A compiled expression. Clones share it.
#[derive(Clone)]
pub struct Expression {
    text: Arc<str>,
    filter: Arc<jaq_core::Filter<Data>>,
}

/// Why a text is no expression.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ExpressionError {
    /// What is wrong.
    pub message: String,
    /// The byte of the text at which it is wrong.
    pub offset: usize,
}

/// Why an expression gave no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EvaluationError {
    /// The expression raised an error.
    #[error("{message}")]
    Raised {
        /// The error.
        message: String,
    },
    /// The expression gave no value.
    #[error("the expression gave no value; it must give one")]
    Nothing,
    /// The expression gave more than one value.
    #[error("the expression gave more than one value; put it in [ ] to get a list")]
    Many,
    /// The expression made more than [`STEPS_MAX`] steps.
    #[error("the expression made more than {STEPS_MAX} steps")]
    Steps,
    /// A value became larger than [`SIZE_MAX`].
    #[error("a value in the expression became too large")]
    Size,
    /// A value nested deeper than [`DEPTH_MAX`].
    #[error("a value in the expression nested deeper than {DEPTH_MAX} levels")]
    Depth,
    /// Calls nested too deep.
    #[error("calls in the expression nested too deep")]
    Stack,
    /// The evaluation took longer than [`TIME_MAX`].
    #[error("the expression took longer than {} s", TIME_MAX.as_secs())]
    Time,
    /// The value has no JSON form.
    #[error("the value of the expression has no JSON form: {message}")]
    NotJson {
        /// What JSON can't hold.
        message: String,
    },
    /// The evaluation ended by a panic of the interpreter, or could not begin.
    #[error("the expression could not be evaluated: {message}")]
    Broken {
        /// What is known of it.
        message: String,
    },
}

/// What an expression sees.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    /// `.`
    pub dot: Value,
    /// `$input`
    pub input: Value,
    /// `$outputs`
    pub outputs: Value,
    /// `$results`
    pub results: Value,
    /// `$run`
    pub run: Value,
    /// `$settings`
    pub settings: Value,
}

impl Environment {
    /// What an expression of a node sees: `.` is `{input, outputs, results, run, settings}`.
    ///
    /// `$outputs` and `$results` are objects by node id; `$run` is `{runId, nodeId, visit, attemptId}`
    /// and, in an action, `effectId`. `$settings` are the live settings of the workflow, null when it has none.
    pub fn of(context: &NodeContext<'_>) -> Self {
        let json = |value: serde_json::Result<Value>| value.unwrap_or(Value::Null);
        let mut run = serde_json::json!({
            "runId": context.run_id,
            "nodeId": context.node_id,
            "visit": context.visit,
            "attemptId": context.attempt_id,
        });
        if let (Some(effect_id), Some(run)) = (context.effect_id, run.as_object_mut()) {
            run.insert("effectId".to_owned(), effect_id.into());
        }
        let mut environment = Self {
            dot: Value::Null,
            input: context.input.clone(),
            outputs: json(serde_json::to_value(context.outputs)),
            results: json(serde_json::to_value(context.results)),
            run,
            settings: context.settings.cloned().unwrap_or_default(),
        };
        environment.dot = serde_json::json!({
            "input": environment.input,
            "outputs": environment.outputs,
            "results": environment.results,
            "run": environment.run,
            "settings": environment.settings,
        });
        environment
    }

    /// The same with another `.`.
    #[must_use]
    pub fn with_dot(mut self, dot: Value) -> Self {
        self.dot = dot;
        self
    }
}

impl fmt::Debug for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Expression").field(&self.text).finish()
    }
}

impl Expression {
    /// Compiles a text.
    ///
    /// # Errors
    ///
    /// [`ExpressionError`] with the place of the first mistake.
    pub fn compile(text: &str) -> Result<Self, ExpressionError> {
        if TEXT_MAX_BYTES < text.len() {
            let message = format!("longer than {TEXT_MAX_BYTES} bytes");
            return Err(ExpressionError { message, offset: 0 });
        }
        let owned: Arc<str> = text.into();
        let text = Arc::clone(&owned);
        // The parser descends with the brackets of the text, so it needs the large stack as well.
        let compiled = on_large_stack(move || compile(&text)).and_then(|end| {
            end.recv_timeout(TIME_MAX)
                .map_err(|error| format!("the compiler did not end: {error}"))
        });
        let filter =
            compiled.unwrap_or_else(|message| Err(ExpressionError { message, offset: 0 }))?;
        Ok(Self {
            text: owned,
            filter: Arc::new(filter),
        })
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Gives the one value of the expression.
    ///
    /// ```
    /// use holdpoint_workflows::file::{Environment, Expression};
    ///
    /// let expression = Expression::compile(".a + $input.b").unwrap();
    /// let environment = Environment {
    ///     dot: serde_json::json!({"a": 1}),
    ///     input: serde_json::json!({"b": 2}),
    ///     ..Environment::default()
    /// };
    /// assert_eq!(expression.evaluate(environment).unwrap(), 3);
    /// ```
    ///
    /// # Errors
    ///
    /// [`EvaluationError`] says what it raised, or which limit it passed.
    pub fn evaluate(&self, environment: Environment) -> Result<Value, EvaluationError> {
        self.evaluate_within(STEPS_MAX, environment)
    }

    fn evaluate_within(
        &self,
        steps: u64,
        environment: Environment,
    ) -> Result<Value, EvaluationError> {
        let filter = Arc::clone(&self.filter);
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let end = on_large_stack(move || run(&filter, &environment, steps, seen))
            .map_err(|message| EvaluationError::Broken { message })?;
        match end.recv_timeout(TIME_MAX) {
            Ok(result) => result,
            Err(RecvTimeoutError::Timeout) => {
                // The thread ends at its next guard.
                stop.store(true, Ordering::Relaxed);
                Err(EvaluationError::Time)
            }
            Err(RecvTimeoutError::Disconnected) => Err(EvaluationError::Broken {
                message: "the interpreter panicked".to_owned(),
            }),
        }
    }
}

/// Runs a function on a thread with a large stack. A panic shows as a closed channel.
fn on_large_stack<T: Send + 'static>(
    function: impl FnOnce() -> T + Send + 'static,
) -> Result<mpsc::Receiver<T>, String> {
    let (sender, receiver) = mpsc::sync_channel(1);
    std::thread::Builder::new()
        .name("holdpoint-jq".to_owned())
        .stack_size(STACK_BYTES)
        .spawn(move || {
            // Nobody listens any more when the time was up.
            let _gone = sender.send(function());
        })
        .map_err(|error| error.to_string())?;
    Ok(receiver)
}

fn compile(text: &str) -> Result<jaq_core::Filter<Data>, ExpressionError> {
    // Once as it is, for mistakes with their places …
    let arena = Arena::default();
    let library = || guard::library();
    let modules = Loader::new(library())
        .load(
            &arena,
            File {
                code: text,
                path: (),
            },
        )
        .map_err(|errors| load_error(text, errors))?;
    Compiler::default()
        .with_funs(guard::filters())
        .with_global_vars(VARIABLES)
        .compile(modules)
        .map_err(|errors| undefined(text, errors))?;

    // … and once guarded, for evaluation. The guarded syntax tree can't be given to the compiler as
    // main program, so it is a definition of the library that the main program calls.
    let place = |message: &str| ExpressionError {
        message: message.to_owned(),
        offset: 0,
    };
    let term: Term<&str> = load::parse(text, |parser| parser.term())
        .ok_or_else(|| place("modules are not available"))?;
    let main = Def {
        name: MAIN,
        args: VARIABLES.to_vec(),
        body: guard::term(term),
    };
    let modules = Loader::new(guarded_library().chain([main]))
        .load(
            &arena,
            File {
                code: MAIN_CALL,
                path: (),
            },
        )
        .ok()
        .ok_or_else(|| place("BUG: the guarded expression does not load"))?;
    Compiler::default()
        .with_funs(guard::filters())
        .with_global_vars(VARIABLES)
        .compile(modules)
        .ok()
        .ok_or_else(|| place("BUG: the guarded expression does not compile"))
}

/// The library with guards, made once.
fn guarded_library<'s>() -> impl Iterator<Item = Def<&'s str>> {
    static LIBRARY: OnceLock<Vec<Def<&'static str>>> = OnceLock::new();
    LIBRARY
        .get_or_init(|| guard::library().map(guard::definition).collect())
        .iter()
        .cloned()
}

fn load_error(text: &str, errors: load::Errors<&str, ()>) -> ExpressionError {
    let place = |part: &str| load::span(text, part).start;
    let shown = |part: &str| part.chars().take(20).collect::<String>();
    let error = errors.into_iter().map(|(_, error)| error).next();
    let (message, offset) = match error {
        Some(load::Error::Lex(errors)) => match errors.into_iter().next() {
            Some((expected, "")) => (
                format!("expected {}, found the end", expected.as_str()),
                text.trim_end().len(),
            ),
            Some((expected, found)) => (
                format!("expected {}, found {:?}", expected.as_str(), shown(found)),
                place(found),
            ),
            None => ("is not valid".to_owned(), 0),
        },
        Some(load::Error::Parse(errors)) => match errors.into_iter().next() {
            Some((expected, "")) => (
                format!("expected {}, found the end", expected.as_str()),
                text.trim_end().len(),
            ),
            Some((expected, found)) => (
                format!("expected {}, found {:?}", expected.as_str(), shown(found)),
                place(found),
            ),
            None => ("is not valid".to_owned(), 0),
        },
        Some(load::Error::Io(errors)) => {
            let at = errors.first().map_or(0, |(path, _)| place(path));
            ("modules are not available".to_owned(), at)
        }
        None => ("is not valid".to_owned(), 0),
    };
    ExpressionError { message, offset }
}

fn undefined(text: &str, errors: jaq_core::compile::Errors<&str, ()>) -> ExpressionError {
    let first = errors.into_iter().flat_map(|(_, errors)| errors).next();
    let Some((name, kind)) = first else {
        return ExpressionError {
            message: "is not valid".to_owned(),
            offset: 0,
        };
    };
    let way_out = match kind.as_str() {
        "filter" if guard::IMPURE.contains(&name) => {
            "; expressions are pure, so take such a value from the input or from an action"
        }
        "variable" => "; there are $input, $outputs, $results, $run and $settings",
        _ => "",
    };
    ExpressionError {
        message: format!("there is no {} {name}{way_out}", kind.as_str()),
        offset: load::span(text, name).start,
    }
}

fn run(
    filter: &jaq_core::Filter<Data>,
    environment: &Environment,
    steps: u64,
    stop: Arc<AtomicBool>,
) -> Result<Value, EvaluationError> {
    let Environment {
        dot,
        input,
        outputs,
        results,
        run,
        settings,
    } = environment;
    guard::begin(steps, stop);
    let variables = Vars::new([input, outputs, results, run, settings].map(value::from_json));
    let context = Ctx::<Data>::new(&filter.lut, variables);
    let mut values = filter.id.run((context, value::from_json(dot)));
    let first = values.next();
    let second = first
        .as_ref()
        .is_some_and(Result::is_ok)
        .then(|| values.next())
        .flatten();
    // A guard that found a limit passed has halted the program.
    if let Some(limit) = guard::passed() {
        return Err(limit);
    }
    match (first, second) {
        (None, _) => Err(EvaluationError::Nothing),
        (Some(Err(raised)), _) | (Some(Ok(_)), Some(Err(raised))) => {
            let message = match raised.get_err() {
                Ok(error) => match value::to_json(&error.into_val()) {
                    Ok(Value::String(text)) => text,
                    Ok(other) => other.to_string(),
                    Err(error) => error.to_string(),
                },
                Err(_) => "the expression left its own bounds".to_owned(),
            };
            Err(EvaluationError::Raised { message })
        }
        (Some(Ok(_)), Some(Ok(_))) => Err(EvaluationError::Many),
        (Some(Ok(one)), None) => {
            guard::measure(&one)?;
            let json = value::to_json(&one)?;
            let bytes = json::canonical(&json);
            bytes
                .and_then(|bytes| json::parse(&bytes))
                .map_err(|error| EvaluationError::NotJson {
                    message: error.to_string(),
                })
        }
    }
}

#[cfg(test)]
mod tests;
