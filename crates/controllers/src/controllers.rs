//! The controllers of a program: registration, and the typed verbs on resources of one project.
//!
//! Not here: rules. Each verb is one of `commands` or `views`; this room tells the scheduler of the process what it made due.

use std::any::TypeId;
use std::collections::HashMap;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use holdpoint_state::clock::{Clock as _, SystemClock, UnixMillis};
use holdpoint_state::{Actor, Database, Receipt};
use holdpoint_workflows::definition::CancellationSignal;
use holdpoint_workflows::{WorkerLauncher, Workflows};
use serde::Deserialize as _;
use serde_json::{Map, Value};

use crate::commands::{self, Applied, Apply};
use crate::controller::{Controller, Typed};
use crate::duty::ControllerDuty;
use crate::error::ControllerError;
use crate::model::{ConditionStatus, ControllerName, Key, ManagedResource, ProjectPath, Target};
use crate::runtime::{Reconciler, Registered};
use crate::views;

/// How soon a wait looks at the store again, each time twice as long, up to the longest.
const LOOK: Duration = Duration::from_millis(5);
const LOOK_MAX: Duration = Duration::from_millis(100);

/// The controllers of a program, for the resources of one project. Clones share them.
///
/// A controller that keeps a greeting file for each resource, with an effect and a finalizer:
///
/// ```
/// use std::path::PathBuf;
/// use std::time::Duration;
///
/// use holdpoint_controllers::model::{ConditionInput, EffectRequest};
/// use holdpoint_controllers::{
///     Acted, Action, Controller, Controllers, EffectCall, ExternalEffect, Observed, Pass, PassError, finalizer,
/// };
/// use holdpoint_state::{Database, Identity, Schema};
/// use holdpoint_workflows::{SchedulerOptions, Workflows};
/// use serde_json::{Value, json};
///
/// /// Writes one file, or makes sure that it is gone.
/// struct Keep { key: String, path: PathBuf, text: Option<String> }
///
/// impl ExternalEffect for Keep {
///     fn kind(&self) -> &str {
///         "greeting.keep"
///     }
///
///     fn key(&self) -> String {
///         self.key.clone()
///     }
///
///     fn request(&self) -> Value {
///         json!({ "path": self.path, "text": self.text })
///     }
///
///     fn observe(&self, _call: &EffectCall<'_>) -> Result<Observed, PassError> {
///         let found = std::fs::read_to_string(&self.path).ok();
///         Ok(if found == self.text { Observed::applied() } else { Observed::NotApplied })
///     }
///
///     fn apply(&self, _call: &EffectCall<'_>) -> Result<Acted, PassError> {
///         match &self.text {
///             Some(text) => std::fs::write(&self.path, text)?,
///             // Already gone is gone.
///             None if self.path.try_exists()? => std::fs::remove_file(&self.path)?,
///             None => {}
///         }
///         Ok(Acted::applied())
///     }
/// }
///
/// struct Greetings { directory: PathBuf }
///
/// impl Controller for Greetings {
///     type Spec = String;
///     type Status = Option<String>;
///
///     fn name(&self) -> &str {
///         "greetings"
///     }
///
///     fn initial_status(&self, _spec: &String) -> Option<String> {
///         None
///     }
///
///     // Looks what became of an act that nobody names any more: its process died, and then the spec was changed.
///     fn effect(&self, request: &EffectRequest) -> Option<Box<dyn ExternalEffect>> {
///         let key = request.key.to_string();
///         let path = request.request["path"].as_str()?.into();
///         let text = request.request["text"].as_str().map(str::to_owned);
///         Some(Box::new(Keep { key, path, text }))
///     }
///
///     fn reconcile(&self, pass: &mut Pass<'_, String, Option<String>>) -> Result<Action, PassError> {
///         let path = self.directory.join(pass.metadata().key.as_str());
///         finalizer::with(pass, "greetings/file", |pass, event| match event {
///             finalizer::Event::Apply => {
///                 // What another generation wants is another act, also when it wants the same as an older one.
///                 let key = format!("write-{}", pass.generation());
///                 let text = format!("Hello {}", pass.spec());
///                 pass.ensure(&Keep { key, path, text: Some(text.clone()) })?;
///                 pass.set_status(Some(text));
///                 pass.set_condition(ConditionInput::new("Ready", true, "Written"));
///                 Ok(Action::settled())
///             }
///             finalizer::Event::Cleanup => {
///                 pass.ensure(&Keep { key: "remove".to_owned(), path, text: None })?;
///                 Ok(Action::settled())
///             }
///         })
///     }
/// }
///
/// # let directory = tempfile::tempdir()?;
/// # let schema = Schema::compose(
/// #     Identity::PI_WORKFLOWS,
/// #     [holdpoint_state::DOMAIN, holdpoint_workflows::DOMAIN, holdpoint_controllers::DOMAIN],
/// # )?;
/// # let db = Database::open(directory.path().join("state.sqlite"), &schema)?;
/// let workflows = Workflows::new(db);
/// let controllers = Controllers::new(&workflows, "/srv/example")?
///     .register(Greetings { directory: directory.path().to_owned() })?;
/// // One scheduler executes runs and passes.
/// let workflows = controllers.attach(workflows);
/// let scheduler = workflows.scheduler(SchedulerOptions::default())?;
///
/// let limit = Duration::from_secs(30);
/// controllers.apply::<Greetings>("ada", &"Ada".to_owned())?;
/// let ready = controllers.wait_for_condition::<Greetings>("ada", "Ready", limit)?;
/// assert!(ready.is_some());
/// assert_eq!(std::fs::read_to_string(directory.path().join("ada"))?, "Hello Ada");
///
/// controllers.delete::<Greetings>("ada")?;
/// assert!(controllers.wait_until_gone::<Greetings>("ada", limit)?);
/// assert!(!directory.path().join("ada").exists());
/// scheduler.stop(Duration::from_secs(1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Controllers {
    shared: Arc<Shared>,
}

struct Shared {
    workflows: Workflows,
    project: ProjectPath,
    registered: Arc<Registered>,
    /// The names of controllers by their types, for the typed verbs.
    by_type: RwLock<HashMap<TypeId, ControllerName>>,
    settings: RwLock<Settings>,
}

/// How passes are executed.
struct Settings {
    launcher: Option<WorkerLauncher>,
    jitter: Arc<dyn Fn() -> f64 + Send + Sync>,
    options: Value,
}

/// A resource with the types of its controller.
#[derive(Debug, Clone, PartialEq)]
pub struct Managed<S, T> {
    /// What is wanted.
    pub spec: S,
    /// The controller's own part of the status.
    pub status: T,
    /// The whole.
    pub resource: ManagedResource,
}

/// A resource of a controller.
pub type ManagedBy<C> = Managed<<C as Controller>::Spec, <C as Controller>::Status>;

impl Controllers {
    /// The controllers for the resources of one project: an absolute path without `.`, `..` and a slash at the end.
    ///
    /// # Errors
    ///
    /// [`ControllerError::Invalid`] for a path that is none.
    pub fn new(workflows: &Workflows, project: impl AsRef<Path>) -> Result<Self, ControllerError> {
        let project = project.as_ref().to_string_lossy();
        Ok(Self {
            shared: Arc::new(Shared {
                project: ProjectPath::new(project.into_owned())?,
                registered: Arc::default(),
                by_type: RwLock::default(),
                settings: RwLock::new(Settings {
                    launcher: None,
                    jitter: Arc::new(chance),
                    options: Value::Object(Map::new()),
                }),
                workflows: workflows.clone(),
            }),
        })
    }

    /// The same with a controller more. Its resources are searched for from now on.
    ///
    /// # Errors
    ///
    /// [`ControllerError::Registered`] when its name or its type is taken; [`ControllerError::Invalid`] for a name that is none.
    pub fn register<C: Controller>(self, controller: C) -> Result<Self, ControllerError> {
        let name = ControllerName::new(controller.name())?;
        let taken = || ControllerError::Registered {
            controller: name.to_string(),
        };
        let by_type = self.shared.by_type.write();
        let mut by_type = by_type.unwrap_or_else(PoisonError::into_inner);
        if by_type.contains_key(&TypeId::of::<C>()) {
            return Err(taken());
        }
        let controller = Arc::new(Typed(controller));
        if !self.shared.registered.add(name.clone(), controller) {
            return Err(taken());
        }
        by_type.insert(TypeId::of::<C>(), name);
        drop(by_type);
        self.shared.workflows.wake_work();
        Ok(self)
    }

    /// The same with each pass in a worker process of its own: what a pass does wrong there, also what no thread can be stopped from, ends
    /// with its process. The launcher's program calls [`PassWorker::run`](crate::PassWorker::run) with the same controllers.
    ///
    /// Say it before [`Controllers::attach`].
    #[must_use]
    pub fn isolating(self, launcher: WorkerLauncher) -> Self {
        self.set(|settings| settings.launcher = Some(launcher));
        self
    }

    /// The same with options that the runs of children are launched with, such as the directory that a program executes them in.
    ///
    /// Say it before [`Controllers::attach`].
    #[must_use]
    pub fn launching_with(self, options: Value) -> Self {
        self.set(|settings| settings.options = options);
        self
    }

    /// The same with another source of the numbers in 0..1 that move the back-off after a failure by a fifth at most; 0.5 moves nothing.
    ///
    /// Say it before [`Controllers::attach`].
    #[must_use]
    pub fn jittering_with(self, jitter: impl Fn() -> f64 + Send + Sync + 'static) -> Self {
        self.set(|settings| settings.jitter = Arc::new(jitter));
        self
    }

    fn set(&self, change: impl FnOnce(&mut Settings)) {
        let settings = self.shared.settings.write();
        change(&mut settings.unwrap_or_else(PoisonError::into_inner));
    }

    /// The workflows with these controllers: a scheduler that is started from what this returns executes their passes, on the workers
    /// that it has for runs and in turn with them.
    #[must_use]
    pub fn attach(&self, workflows: Workflows) -> Workflows {
        let settings = self.shared.settings.read();
        let settings = settings.unwrap_or_else(PoisonError::into_inner);
        let reconciler = Reconciler {
            project: self.shared.project.clone(),
            registered: Arc::clone(&self.shared.registered),
            workflows: self.shared.workflows.clone(),
            launcher: settings.launcher.clone(),
            jitter: Arc::clone(&settings.jitter),
            options: settings.options.clone(),
        };
        workflows
            .with_work(Arc::new(reconciler))
            .with_duty(Arc::new(ControllerDuty::new()))
    }

    /// The project.
    pub fn project(&self) -> &ProjectPath {
        &self.shared.project
    }

    /// The store.
    pub fn database(&self) -> &Database {
        self.shared.workflows.database()
    }

    /// The names of the controllers that are registered, sorted.
    pub fn names(&self) -> Vec<ControllerName> {
        self.shared.registered.names()
    }

    /// The JSON Schema of the specs of a controller, if it has one.
    pub fn spec_schema(&self, name: &ControllerName) -> Option<Value> {
        self.shared.registered.get(name)?.spec_schema()
    }

    /// The status that a new resource of a controller begins with, for a caller that has no types.
    ///
    /// # Errors
    ///
    /// [`ControllerError::NotRegistered`]; [`ControllerError::Shape`] for a spec that the controller can't read.
    pub fn initial_status(
        &self,
        name: &ControllerName,
        spec: &Value,
    ) -> Result<Value, ControllerError> {
        let controller = self.shared.registered.get(name);
        let controller = controller.ok_or_else(|| ControllerError::NotRegistered {
            controller: name.to_string(),
        })?;
        controller
            .initial_status(spec)
            .map_err(|error| shape("spec", &error))
    }

    /// Names a resource of a controller.
    ///
    /// # Errors
    ///
    /// [`ControllerError::NotRegistered`]; [`ControllerError::Invalid`] for a key that is none.
    pub fn target<C: Controller>(&self, key: impl AsRef<str>) -> Result<Target, ControllerError> {
        Ok(Target::new(
            self.shared.project.clone(),
            self.name::<C>()?,
            Key::new(key.as_ref())?,
        ))
    }

    /// Says what is wanted. A spec that is the same already changes nothing; a new one wakes the controller.
    ///
    /// # Errors
    ///
    /// Those of [`commands::apply()`], and those of [`Controllers::target`].
    pub fn apply<C: Controller>(
        &self,
        key: impl AsRef<str>,
        spec: &C::Spec,
    ) -> Result<Receipt<Applied>, ControllerError> {
        let target = self.target::<C>(key)?;
        let spec = serde_json::to_value(spec).map_err(|error| shape("spec", &error))?;
        let initial = self.initial_status(&target.controller, &spec)?;
        self.send(&Apply::new(&target, spec).initial_status(initial))
    }

    /// Says what is wanted of a resource, for a caller that has no types.
    ///
    /// # Errors
    ///
    /// Those of [`commands::apply()`].
    pub fn send(&self, apply: &Apply) -> Result<Receipt<Applied>, ControllerError> {
        let receipt = commands::apply(self.database(), apply)?;
        self.shared.workflows.wake_work();
        Ok(receipt)
    }

    /// A resource as it is now.
    ///
    /// # Errors
    ///
    /// [`ControllerError::Shape`] when it was written in another shape, those of [`Controllers::target`], and those of the database.
    pub fn get<C: Controller>(
        &self,
        key: impl AsRef<str>,
    ) -> Result<Option<ManagedBy<C>>, ControllerError> {
        let target = self.target::<C>(key)?;
        self.read::<C>(&target)
    }

    fn read<C: Controller>(
        &self,
        target: &Target,
    ) -> Result<Option<ManagedBy<C>>, ControllerError> {
        let snapshot = self.database().snapshot()?;
        let found = views::resource(&snapshot, target)?;
        found.map(managed::<C>).transpose()
    }

    /// The resources of a controller, sorted by their keys: at most `limit`.
    ///
    /// # Errors
    ///
    /// As [`Controllers::get`].
    pub fn list<C: Controller>(&self, limit: u32) -> Result<Vec<ManagedBy<C>>, ControllerError> {
        let filter = views::Filter {
            controller: Some(self.name::<C>()?),
            limit,
            ..views::Filter::of(&self.shared.project)
        };
        let db = self.database();
        let snapshot = db.snapshot()?;
        let mut found = Vec::new();
        for summary in views::list(&snapshot, &filter, db.clock().now())? {
            if let Some(resource) = views::resource_of(&snapshot, &summary.uid)? {
                found.push(managed::<C>(resource)?);
            }
        }
        Ok(found)
    }

    /// Asks for the end of a resource. Its controller cleans up first, if it has a finalizer.
    ///
    /// # Errors
    ///
    /// Those of [`commands::request_deletion()`], and those of [`Controllers::target`].
    pub fn delete<C: Controller>(&self, key: impl AsRef<str>) -> Result<(), ControllerError> {
        let target = self.target::<C>(key)?;
        commands::request_deletion(self.database(), &target, Actor::control("program"))?;
        self.shared.workflows.wake_work();
        Ok(())
    }

    /// Says that something happened which may concern a resource: its controller looks at it, at once or at a time. What happened is
    /// not told; the controller sees for itself. A resource is due once: of two times the earlier one stays, so that a hint for later is
    /// used up by a pass that comes before. A controller that wants to look again after a while says so with [`Action`](crate::Action).
    ///
    /// # Errors
    ///
    /// Those of [`commands::enqueue()`], and those of [`Controllers::target`].
    pub fn hint<C: Controller>(
        &self,
        key: impl AsRef<str>,
        at: Option<UnixMillis>,
    ) -> Result<(), ControllerError> {
        let target = self.target::<C>(key)?;
        commands::enqueue(self.database(), &target, at)?;
        self.shared.workflows.wake_work();
        Ok(())
    }

    /// Waits until a resource is as wanted, or until the limit. Returns it as it then is; `wanted` is asked about none while it does not
    /// exist.
    ///
    /// # Errors
    ///
    /// As [`Controllers::get`].
    pub fn wait_until<C: Controller>(
        &self,
        key: impl AsRef<str>,
        limit: Duration,
        wanted: impl Fn(Option<&ManagedBy<C>>) -> bool,
    ) -> Result<Option<ManagedBy<C>>, ControllerError> {
        let target = self.target::<C>(key)?;
        let (never, begun) = (CancellationSignal::never(), SystemClock.monotonic());
        let mut look = LOOK;
        loop {
            let found = self.read::<C>(&target)?;
            let passed = Duration::from_millis(SystemClock.monotonic().since(begun));
            let left = limit.saturating_sub(passed);
            if left.is_zero() || wanted(found.as_ref()) {
                return Ok(found);
            }
            never.wait(look.min(left));
            look = LOOK_MAX.min(look * 2);
        }
    }

    /// Waits until a condition is true for the present generation of a resource, or until the limit. Returns the resource if it is so.
    ///
    /// # Errors
    ///
    /// As [`Controllers::get`].
    pub fn wait_for_condition<C: Controller>(
        &self,
        key: impl AsRef<str>,
        condition_type: &str,
        limit: Duration,
    ) -> Result<Option<ManagedBy<C>>, ControllerError> {
        let is_true = |found: &ManagedBy<C>| {
            let condition = found.resource.current_condition(condition_type);
            condition.is_some_and(|condition| condition.status == ConditionStatus::True)
        };
        let found = self.wait_until::<C>(key, limit, |found| found.is_some_and(is_true))?;
        Ok(found.filter(is_true))
    }

    /// Waits until a resource is gone, or until the limit. Returns whether it is.
    ///
    /// # Errors
    ///
    /// As [`Controllers::get`].
    pub fn wait_until_gone<C: Controller>(
        &self,
        key: impl AsRef<str>,
        limit: Duration,
    ) -> Result<bool, ControllerError> {
        let found = self.wait_until::<C>(key, limit, |found| found.is_none())?;
        Ok(found.is_none())
    }

    fn name<C: Controller>(&self) -> Result<ControllerName, ControllerError> {
        let by_type = self
            .shared
            .by_type
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        let name = by_type.get(&TypeId::of::<C>()).cloned();
        name.ok_or_else(|| ControllerError::NotRegistered {
            controller: std::any::type_name::<C>().to_owned(),
        })
    }
}

impl std::fmt::Debug for Controllers {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Controllers")
            .field("project", &self.shared.project)
            .field("names", &self.names())
            .finish_non_exhaustive()
    }
}

fn managed<C: Controller>(resource: ManagedResource) -> Result<ManagedBy<C>, ControllerError> {
    let spec = C::Spec::deserialize(&resource.spec).map_err(|error| shape("spec", &error))?;
    let status = C::Status::deserialize(&resource.status.controller_status)
        .map_err(|error| shape("status", &error))?;
    Ok(Managed {
        spec,
        status,
        resource,
    })
}

fn shape(what: &'static str, problem: &impl ToString) -> ControllerError {
    ControllerError::Shape {
        what,
        problem: problem.to_string(),
    }
}

/// A number in 0..1 without a seed to keep.
fn chance() -> f64 {
    let random = RandomState::new().build_hasher().finish();
    #[expect(
        clippy::cast_precision_loss,
        reason = "a share needs no more than a few digits"
    )]
    let share = random as f64 / u64::MAX as f64;
    share
}
