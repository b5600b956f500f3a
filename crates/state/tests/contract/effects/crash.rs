//! Workers that are killed (SIGKILL) between intent, act and receipt, and several workers in several processes.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use holdpoint_state::effects::{
    ApplyOutcome, BackOff, EffectCall, EffectHandler, EffectWorker, WorkerOptions,
};
use holdpoint_state::testing::TestStore;
use holdpoint_state::{
    Change, Database, Digest, EffectState, Identity, Schema, StateError, effects,
};

use super::probe::{self, create, run, send, store, touch, violations};
use crate::children::{Child, task, wait_for_parent};

const CHILD: &str = "effects::crash::child_works";
/// The word on which a parent kills.
const HERE: &str = "kill me here";

/// Where a child stops and waits for its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Point {
    BeforeTheAct,
    AfterTheAct,
    InTheSettlement,
    Nowhere,
}

/// What a child is to do, as text in its environment.
#[derive(Clone, Copy)]
struct Task {
    takes_token: bool,
    point: Point,
    /// Fails at random, by a digest over this, the effect and the attempt.
    seed: Option<u32>,
    lease_ms: u32,
}

const TASK: Task = Task {
    takes_token: false,
    point: Point::Nowhere,
    seed: None,
    lease_ms: 60,
};

impl Task {
    fn write(self) -> String {
        let seed = self.seed.map_or("-".into(), |seed| seed.to_string());
        format!(
            "{} {:?} {seed} {}",
            self.takes_token, self.point, self.lease_ms
        )
    }

    fn read(text: &str) -> Self {
        let words: Vec<_> = text.split(' ').collect();
        let point = [
            Point::BeforeTheAct,
            Point::AfterTheAct,
            Point::InTheSettlement,
            Point::Nowhere,
        ]
        .into_iter()
        .find(|point| format!("{point:?}") == words[1]);
        Self {
            takes_token: words[0] == "true",
            point: point.unwrap(),
            seed: words[2].parse().ok(),
            lease_ms: words[3].parse().unwrap(),
        }
    }
}

/// A provider in a directory: each act is a line of a file that is only appended to. One that takes tokens does each token's act
/// once: making a file of that name is atomic.
#[derive(Clone)]
struct Provider {
    directory: PathBuf,
}

impl Provider {
    fn of(store: &Path) -> Self {
        let directory = store.with_file_name("provider");
        fs::create_dir_all(&directory).unwrap();
        Self { directory }
    }

    fn append(&self, file: &str, line: &str) {
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.directory.join(file))
            .unwrap();
        // One write of a short line to a file in append mode is not torn by others.
        file.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    fn act(&self, call: &EffectCall, takes_token: bool) {
        self.append("calls", &call.key);
        let token = self.directory.join(call.effect_id.as_str());
        if takes_token
            && OpenOptions::new()
                .write(true)
                .create_new(true)
                .open(token)
                .is_err()
        {
            return;
        }
        self.append("acts", &call.key);
    }

    fn lines(&self, file: &str) -> Vec<String> {
        let text = fs::read_to_string(self.directory.join(file)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    fn counts(&self, file: &str) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for line in self.lines(file) {
            *counts.entry(line).or_default() += 1;
        }
        counts
    }
}

struct Handler {
    provider: Provider,
    task: Task,
}

impl Handler {
    fn reach(&self, point: Point) {
        if self.task.point == point {
            wait_for_parent(HERE);
        }
    }
}

impl EffectHandler for Handler {
    fn effect_type(&self) -> &'static str {
        "probe.send"
    }

    fn apply(&self, call: &EffectCall) -> ApplyOutcome {
        let chance = self.task.seed.map(|seed| {
            let dice = format!("{seed} {} {}", call.effect_id, call.attempt);
            Digest::of(dice.as_bytes()).0[0]
        });
        self.reach(Point::BeforeTheAct);
        match chance {
            Some(0..=40) => {
                return ApplyOutcome::NotApplied {
                    retry_after_ms: None,
                };
            }
            Some(41..=60) => return ApplyOutcome::Indeterminate { error: None },
            _ => {}
        }
        self.provider.act(call, self.task.takes_token);
        self.reach(Point::AfterTheAct);
        if matches!(chance, Some(61..=80)) {
            return ApplyOutcome::Indeterminate { error: None };
        }
        ApplyOutcome::Applied {
            result: None,
            external_ref: None,
        }
    }

    fn takes_token(&self) -> bool {
        self.task.takes_token
    }

    fn settled(
        &self,
        _: &mut Change<'_>,
        _: &EffectCall,
        state: EffectState,
    ) -> Result<(), StateError> {
        if state == EffectState::Applied {
            self.reach(Point::InTheSettlement);
        }
        Ok(())
    }
}

/// The life of a child: works until nothing is left to do.
#[test]
fn child_works() {
    let Some((path, argument)) = task() else {
        return;
    };
    let task = Task::read(&argument);
    let schema = Schema::compose(
        Identity::PI_WORKFLOWS,
        [holdpoint_state::DOMAIN, probe::DOMAIN],
    )
    .unwrap();
    let db = Database::open(&path, &schema).unwrap();
    let options = WorkerOptions {
        lease_ms: task.lease_ms,
        back_off: BackOff {
            base_ms: 1,
            cap_ms: 5,
        },
        // A child that is killed has one effect in flight, so that the numbers are exact.
        concurrency: if task.point == Point::Nowhere { 2 } else { 1 },
        ..WorkerOptions::default()
    };
    let handler = Handler {
        provider: Provider::of(&path),
        task,
    };
    let worker = EffectWorker::new(db.clone(), options)
        .handler(handler)
        .unwrap();
    while !is_settled(&db) {
        worker.run_due_once().unwrap();
        // A lease of somebody dead has to run out; nothing tells when.
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

fn is_settled(db: &Database) -> bool {
    let counts = effects::counts(&db.snapshot().unwrap()).unwrap();
    counts.pending + counts.applying == 0
}

/// A store with a run that has reserved these effects.
fn reserved(keys: impl IntoIterator<Item = (String, Option<String>)>) -> TestStore {
    let store = store();
    create(store.db(), &run("run-1"));
    let keys: Vec<_> = keys.into_iter().collect();
    touch(store.db(), &run("run-1"), move |change| {
        for (key, line) in &keys {
            let effect = send(key);
            change.reserve_effect(&match line {
                Some(line) => effect.ordered_by(line),
                None => effect,
            })?;
        }
        Ok(())
    })
    .unwrap();
    store
}

fn start(store: &TestStore, task: Task) -> Child {
    Child::start(CHILD, &store.path(), &task.write())
}

fn states(store: &TestStore) -> BTreeMap<&'static str, usize> {
    let all = effects::list(
        &store.db().snapshot().unwrap(),
        &effects::EffectFilter::default(),
        1_000,
    );
    let mut states = BTreeMap::new();
    for effect in all.unwrap() {
        *states.entry(effect.state.as_str()).or_default() += 1;
    }
    states
}

const POINTS: [Point; 3] = [
    Point::AfterTheAct,
    Point::BeforeTheAct,
    Point::InTheSettlement,
];

#[test]
fn edge_17_a_hundred_kills_of_an_effect_with_a_token_act_once() {
    let store = reserved([("one".into(), None)]);
    let provider = Provider::of(&store.path());
    let with_token = Task {
        takes_token: true,
        ..TASK
    };
    for kill in 0..100 {
        let mut child = start(
            &store,
            Task {
                point: POINTS[kill % 3],
                ..with_token
            },
        );
        child.wait_for(HERE);
        child.kill();
    }
    start(&store, with_token).finish();
    assert_eq!(states(&store), BTreeMap::from([("applied", 1)]));
    assert_eq!(provider.lines("acts"), ["one"]);
    // 100 attempts were killed, 67 of them after the provider was called, and one more came through. A machine that stands still
    // for longer than the lease makes more of them.
    assert!(68 <= provider.lines("calls").len());
    assert!(101 <= probe::number(store.db(), "SELECT attempt_count FROM effects"));
    assert_eq!(violations(store.db()), [""; 0]);
}

#[test]
fn edge_18_a_hundred_kills_without_token_or_observation_never_act_twice() {
    let store = reserved((0..105).map(|key| (format!("{key:03}"), None)));
    let provider = Provider::of(&store.path());
    // Each child acts on an effect that none has begun. On the way it may take a dead one's effect over and can't know. The leases
    // are long enough for a machine that stands still now and then.
    for kill in 0..100 {
        let task = Task {
            point: POINTS[kill % 3],
            lease_ms: 2_000,
            ..TASK
        };
        let mut child = start(&store, task);
        child.wait_for(HERE);
        child.kill();
    }
    start(
        &store,
        Task {
            lease_ms: 30_000,
            ..TASK
        },
    )
    .finish();
    assert_eq!(
        states(&store),
        BTreeMap::from([("ambiguous", 100), ("applied", 5)])
    );
    let acts = provider.counts("acts");
    assert!(acts.values().all(|count| *count == 1), "{acts:?}");
    // 67 kills came after the act, and 5 effects met no kill.
    assert_eq!(acts.len(), 72);
    assert_eq!(violations(store.db()), [""; 0]);
}

#[test]
fn edge_19_two_processes_make_one_attempt_for_each_effect() {
    let store = reserved((0..60).map(|key| (key.to_string(), None)));
    let provider = Provider::of(&store.path());
    let task = Task {
        lease_ms: 30_000,
        ..TASK
    };
    let children = [start(&store, task), start(&store, task)];
    for child in children {
        child.finish();
    }
    assert_eq!(states(&store), BTreeMap::from([("applied", 60)]));
    assert_eq!(provider.lines("acts").len(), 60);
    assert_eq!(provider.counts("acts").len(), 60);
    assert_eq!(
        probe::number(store.db(), "SELECT count(*) FROM effect_attempts"),
        60
    );
    assert_eq!(violations(store.db()), [""; 0]);
}

/// Case 62 of the collected cases: order for each key, with several senders, failures and kills.
#[test]
fn case_062_one_line_is_served_in_order_by_four_processes_with_failures_and_kills() {
    const EFFECTS: usize = 100;
    const LINES: usize = 5;
    let key = |number: usize| format!("{}:{:03}", number % LINES, number / LINES);
    let store = reserved(
        (0..EFFECTS).map(|number| (key(number), Some(format!("line-{}", number % LINES)))),
    );
    let provider = Provider::of(&store.path());
    let task = |seed| Task {
        takes_token: true,
        seed: Some(seed),
        lease_ms: 100,
        ..TASK
    };
    let mut children: Vec<_> = (0..4).map(|seed| start(&store, task(seed))).collect();
    // Kills are spread over the work: one for each handful of acts, whatever the victim is doing then.
    for kill in 1..=12_u32 {
        for _ in 0..4_000 {
            if kill * 7 <= u32::try_from(provider.lines("calls").len()).unwrap() {
                break;
            }
            std::thread::park_timeout(Duration::from_millis(2));
        }
        let victim = usize::try_from(kill).unwrap() % children.len();
        let next = start(&store, task(kill + 4));
        std::mem::replace(&mut children[victim], next).kill();
    }
    for child in children {
        child.finish();
    }
    assert_eq!(states(&store), BTreeMap::from([("applied", EFFECTS)]));
    // The provider acts on the first call of each token. (A file made for the token and a line about it would be two steps, and a
    // kill could fall between them.)
    let mut acts = Vec::new();
    for call in provider.lines("calls") {
        if !acts.contains(&call) {
            acts.push(call);
        }
    }
    assert_eq!(acts.len(), EFFECTS);
    for line in 0..LINES {
        let prefix = format!("{line}:");
        let served: Vec<_> = acts.iter().filter(|act| act.starts_with(&prefix)).collect();
        assert!(served.is_sorted(), "{served:?}");
    }
    // The test is worth something only if attempts failed.
    assert!(EFFECTS < provider.lines("calls").len());
    assert!(
        i64::try_from(EFFECTS).unwrap()
            < probe::number(store.db(), "SELECT count(*) FROM effect_attempts")
    );
    assert_eq!(violations(store.db()), [""; 0]);
}
