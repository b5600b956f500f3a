//! Passes in worker processes. The worker is this test binary again, launched with the name of one of its tests.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Command;
use std::time::Duration;

use holdpoint_controllers::model::{ChildState, EffectOutcome};
use holdpoint_controllers::{Action, Child, Controllers, PassError, PassWorker, finalizer};
use holdpoint_state::json::to_canonical;
use holdpoint_workflows::definition::Workflow;
use holdpoint_workflows::{WorkerLauncher, WorkerLimits, take_worker_channel};
use serde_json::{Value, json};

use super::effects::Recorded;
use super::support::{LONG, Scripted, Seen, World, options, wait_for};

/// A filter of the test harness that fits no test, by which a worker knows that it is one.
const MARK: &str = "launched-as-a-worker";

fn launcher(test: &str) -> WorkerLauncher {
    with_harness(WorkerLauncher::new(std::env::current_exe().unwrap()), test)
}

fn with_harness(launcher: WorkerLauncher, test: &str) -> WorkerLauncher {
    let test = format!("runtime::isolated::{test}");
    let arguments = [
        "--exact",
        &test,
        MARK,
        "--ignored",
        "--nocapture",
        "--test-threads=1",
    ];
    arguments
        .into_iter()
        .fold(launcher, WorkerLauncher::argument)
}

fn is_launched() -> bool {
    std::env::args().any(|argument| argument == MARK)
}

/// The pass that the worker has; the host has one that never runs.
fn pass(pass: &mut Seen<'_>) -> Result<Action, PassError> {
    let spec = pass.spec().clone();
    match spec["do"].as_str().unwrap_or_default() {
        "show" => {
            pass.set_status(json!({ "process": std::process::id() }));
            Ok(Action::settled())
        }
        "fail" => Err(PassError::new("it can't be done")),
        "fail at length" => Err(PassError::new("no".repeat(1 << 20))),
        "find much" => {
            pass.set_status(json!("x".repeat(1 << 20)));
            Ok(Action::settled())
        }
        "panic" => panic!("a bug"),
        "exit" => std::process::exit(0),
        "abort" => std::process::abort(),
        "hang" => {
            // What it starts goes with it.
            let started = Command::new("sleep").arg("600").spawn()?;
            std::fs::write(
                spec["file"].as_str().unwrap_or_default(),
                started.id().to_string(),
            )?;
            loop {
                std::thread::park();
            }
        }
        "effects" => {
            let record = pass.ensure(&Recorded::new("one"))?;
            pass.set_status(json!({ "state": record.state, "ref": record.external_ref }));
            Ok(if record.generation == pass.generation() {
                Action::settled()
            } else {
                Action::requeue()
            })
        }
        "wait and act" => {
            let file = spec["file"].as_str().unwrap_or_default();
            // The pass after it comes at once.
            if std::fs::exists(file)? {
                return Ok(Action::settled());
            }
            std::fs::write(file, std::process::id().to_string())?;
            wait_for("the word", || {
                std::fs::read_to_string(file).is_ok_and(|word| word == "go")
            });
            let effect = Recorded::new("late").applying(|| panic!("it acted without a claim"));
            let refused = pass.ensure(&effect).err().map(|error| error.to_string());
            std::fs::write(file, refused.unwrap_or_default())?;
            Ok(Action::settled())
        }
        "die in an act" => {
            pass.ensure(&Recorded::new("open").applying(|| std::process::exit(0)))?;
            Ok(Action::settled())
        }
        "two effects" => {
            pass.ensure(&Recorded::new("one"))?;
            pass.ensure(&Recorded::new("two"))?;
            Ok(Action::settled())
        }
        "child" => {
            let record = pass.ensure_workflow(&Child::new("child", "doubling", 21)?)?;
            pass.set_workflow_run(record.run_id);
            pass.set_status(json!(record.state));
            Ok(Action::settled())
        }
        "finalizer" => finalizer::with(pass, "example.com/thing", |pass, _| {
            pass.set_workflow_run(None);
            Ok(Action::settled())
        }),
        other => Err(PassError::new(format!("{other:?}"))),
    }
}

fn scripted() -> Scripted {
    Scripted::new(pass).rebuilding(|request| Some(Box::new(Recorded::new(request.key.as_str()))))
}

#[test]
#[ignore = "the worker of the other tests"]
fn worker() {
    if is_launched() {
        let worker = PassWorker::new().register(scripted()).unwrap();
        let code = worker.run();
        // The harness would end it with a code of its own.
        std::process::exit(i32::from(code != std::process::ExitCode::SUCCESS));
    }
}

/// A worker that speaks by itself: what it says last is the spec of its resource.
#[test]
#[ignore = "the worker of the other tests"]
fn raw_worker() {
    if !is_launched() {
        return;
    }
    let mut channel = take_worker_channel().unwrap();
    let mut lines = BufReader::new(channel.try_clone().unwrap()).lines();
    let launch: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    let mut say = |number: &str, operation: &str, payload: &Value| {
        let message = json!({
            "schema": "pi-workflows.controller-worker-message.v1",
            "launchSchema": launch["schema"], "messageId": number, "runnerEpoch": launch["runnerEpoch"],
            "generation": launch["generation"], "operation": operation, "payload": payload,
        });
        let mut line = to_canonical(&message).unwrap();
        line.push(b'\n');
        channel.write_all(&line).unwrap();
    };
    let spec = &launch["resource"]["spec"];
    if spec["late"] != true {
        say("1", "runner.ready", &json!({}));
        let answer: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert_eq!(answer["outcome"], "accepted");
        assert_eq!(
            answer["schema"],
            "pi-workflows.controller-worker-response.v1"
        );
    }
    say(
        "2",
        spec["operation"].as_str().unwrap_or("runner.finished"),
        &spec["payload"],
    );
    drop(lines.next());
    std::process::exit(0);
}

fn isolated(launcher: WorkerLauncher, limit: Duration) -> World {
    let never = |_: &mut Seen<'_>| Err(PassError::new("it ran in the host"));
    let mut world = World::isolated(Scripted::new(never).limited(limit), launcher);
    world.start(options(2));
    world
}

fn ordinary() -> World {
    isolated(launcher("worker"), Duration::from_mins(1))
}

#[test]
fn a_pass_in_a_process_commits_what_a_pass_on_a_thread_does() {
    let world = ordinary();
    let doubling = Workflow::new("doubling")
        .input::<u64>()
        .start_at("n")
        .compute("n", |ctx| Ok(ctx.input() * 2))
        .build()
        .unwrap();
    world.workflows.register(&doubling);
    let uid = world.apply(&json!({ "do": "show" }));
    world.settle();
    let process = world.found().unwrap().status["process"].as_u64().unwrap();
    assert_ne!(process, u64::from(std::process::id()));
    assert!(!is_alive(&process.to_string()));

    world.apply(&json!({ "do": "effects" }));
    world.settle();
    assert_eq!(
        world.found().unwrap().status,
        json!({ "state": "applied", "ref": "ref-1" })
    );
    assert_eq!(world.effects()[0].state, EffectOutcome::Applied);

    world.apply(&json!({ "do": "child" }));
    wait_for("the child", || {
        world.found().unwrap().status == json!(ChildState::Succeeded)
    });
    world.settle();
    let run = world.resource().status.workflow_run.unwrap();
    assert_eq!(
        world.workflows.view(&run).unwrap().final_output,
        Some(json!(42))
    );

    world.apply(&json!({ "do": "finalizer" }));
    world.settle();
    let resource = world.resource();
    assert_eq!(resource.metadata.finalizers.len(), 1);
    assert_eq!(resource.status.workflow_run, None);
    world.controllers.delete::<Scripted>("one").unwrap();
    assert!(
        world
            .controllers
            .wait_until_gone::<Scripted>("one", LONG)
            .unwrap()
    );
    world.settle();
    assert!(!world.events(&uid).contains(&"reconcile_failed".to_owned()));
    world.verify();
}

#[test]
fn a_worker_looks_at_what_an_older_generation_left_open() {
    let world = ordinary();
    let uid = world.apply(&json!({ "do": "die in an act" }));
    world.settle();
    assert_eq!(world.effects()[0].state, EffectOutcome::Pending);
    world.apply(&json!({ "do": "effects" }));
    world.settle();
    let states: Vec<_> = world.effects().iter().map(|effect| effect.state).collect();
    assert_eq!(states, [EffectOutcome::Rejected, EffectOutcome::Applied]);
    assert_eq!(world.events(&uid).last().unwrap(), "reconcile_finished");
    world.verify();
}

#[test]
fn a_pass_that_fails_in_its_process_is_a_failed_pass() {
    let world = ordinary();
    for (act, error) in [
        ("fail", "it can't be done"),
        ("panic", "the pass panicked: a bug"),
        (
            "two effects",
            "a pass has one effect; test.act has to wait for the next",
        ),
    ] {
        world.apply(&json!({ "do": act }));
        world.settle();
        assert_eq!(world.last_error(), error);
    }
    world.verify();
}

#[test]
fn controller_20_a_result_of_another_shape_is_a_failed_pass() {
    let world = isolated(launcher("raw_worker"), Duration::from_mins(1));
    for (payload, error) in [
        (json!(null), "it is not an object"),
        (json!({ "kind": "done" }), "its kind must be"),
        (
            json!({ "kind": "settled", "afterMs": 5 }),
            "a settled pass has no afterMs",
        ),
        (
            json!({ "kind": "requeue", "afterMs": 1.5 }),
            "afterMs must be",
        ),
        (
            json!({ "kind": "settled", "status": { "more": 1 } }),
            "unknown field",
        ),
    ] {
        let uid = world.apply(&json!({ "payload": payload }));
        world.settle();
        assert!(
            world.last_error().contains(error),
            "{payload}: {}",
            world.last_error()
        );
        assert_eq!(world.events(&uid).last().unwrap(), "reconcile_failed");
    }
    world.apply(&json!({ "payload": { "kind": "settled", "status": { "controllerStatus": 5 } } }));
    world.settle();
    assert_eq!(
        (world.found().unwrap().status, world.queue()),
        (json!(5), None)
    );
    world.verify();
}

#[test]
fn what_no_frame_can_say_is_a_failed_pass_with_its_reason() {
    let world = ordinary();
    for (spec, error) in [
        ("find much", "a frame has more than 1048576 bytes"),
        ("fail at length", "nonono"),
    ] {
        world.apply(&json!({ "do": spec }));
        world.settle();
        let said = world.last_error();
        assert!(said.contains(error), "{spec}: {said}");
        assert!(!said.contains("gave no result"), "{spec}: {said}");
    }
    world.verify();
}

#[test]
fn a_pass_without_a_limit_is_launched_like_others() {
    let world = isolated(launcher("worker"), Duration::MAX);
    world.apply(&json!({ "do": "show" }));
    world.settle();
    assert_eq!(world.queue(), None);
    world.verify();
}

#[test]
fn a_large_resource_waits_for_a_worker_that_starts_slowly() {
    // Longer than a worker may take to read what is said to it later, and much less than it may take to start.
    let shell = WorkerLauncher::new("/bin/sh")
        .argument("-c")
        .argument("sleep 6; exec \"$0\" \"$@\"")
        .argument(std::env::current_exe().unwrap());
    let world = isolated(with_harness(shell, "worker"), Duration::from_mins(1));
    world.apply(&json!({ "do": "show", "much": "x".repeat(900_000) }));
    world.settle();
    assert_eq!(world.queue(), None);
    world.verify();
}

#[test]
fn a_worker_that_breaks_the_protocol_is_ended_and_its_pass_failed() {
    let world = isolated(launcher("raw_worker"), Duration::from_mins(1));
    for (spec, error) in [
        (
            json!({ "late": true, "payload": { "kind": "settled" } }),
            "it spoke before it was ready",
        ),
        (
            json!({ "operation": "runner.ready", "payload": {} }),
            "it was ready twice",
        ),
        (
            json!({ "operation": "runner.dance", "payload": {} }),
            "unknown variant",
        ),
    ] {
        world.apply(&spec);
        world.settle();
        assert!(world.last_error().contains(error), "{}", world.last_error());
    }
    world.verify();
}

#[test]
fn controller_21_a_worker_that_does_not_listen_is_killed_at_the_limit_with_all_that_it_started() {
    // What is ignored here stays ignored in the program that follows.
    let shell = WorkerLauncher::new("/bin/sh")
        .argument("-c")
        .argument("trap '' TERM; exec \"$0\" \"$@\"");
    let shell = shell.argument(std::env::current_exe().unwrap());
    let world = isolated(with_harness(shell, "worker"), Duration::from_secs(5));
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("started");
    let uid = world.apply(&json!({ "do": "hang", "file": file }));
    let started = || std::fs::read_to_string(&file).unwrap_or_default();
    wait_for("the process", || !started().is_empty());
    assert!(is_alive(&started()));
    world.pass_time(5_000);
    wait_for("the failure", || {
        world.events(&uid).last().unwrap() == "reconcile_failed"
    });
    assert_eq!(world.last_error(), "the pass took longer than its 5000 ms");
    wait_for("the end of what it started", || !is_alive(&started()));
    assert_eq!(world.queue().unwrap().consecutive_errors, 1);
    world.apply(&json!({ "do": "show" }));
    world.settle();
    assert_eq!(world.queue(), None);
    world.verify();
}

#[test]
fn controller_22_a_worker_that_ends_without_its_last_word_is_a_failed_pass() {
    let world = ordinary();
    for (act, how) in [
        ("exit", "it ended with 0"),
        ("abort", "it was ended by SIGABRT"),
    ] {
        let uid = world.apply(&json!({ "do": act }));
        world.settle();
        let error = world.last_error();
        assert!(
            error.contains("the worker of the pass gave no result"),
            "{error}"
        );
        assert!(error.contains(how), "{error}");
        assert_eq!(world.events(&uid).last().unwrap(), "reconcile_failed");
    }
    world.verify();
}

#[test]
fn a_worker_whose_claim_is_lost_commits_nothing_and_ends() {
    let world = ordinary();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("word");
    let uid = world.apply(&json!({ "do": "wait and act", "file": file }));
    let said = || std::fs::read_to_string(&file).unwrap_or_default();
    wait_for("the worker", || !said().is_empty());
    let process = said();
    // The lease runs out without a renewal, as on a machine that slept.
    world.clock().advance(31_000);
    std::fs::write(&file, "go").unwrap();
    wait_for("the refusal", || {
        said().contains("claim of the pass is lost")
    });
    wait_for("the end of the worker", || !is_alive(&process));
    // The next pass comes as if that one had not been: it has no end in the store.
    world.settle();
    assert_eq!(
        world.events(&uid),
        ["resource.created", "reconcile_finished"]
    );
    assert!(world.effects().is_empty());
    assert_eq!((world.passes(), world.queue()), (0, None));
    world.verify();
}

#[test]
fn a_worker_that_is_not_ready_in_time_or_can_not_be_started_is_a_failed_pass() {
    let limits = WorkerLimits {
        ready_ms: 200,
        ..WorkerLimits::default()
    };
    let world = isolated(
        WorkerLauncher::new("sleep").argument("600").limited(limits),
        Duration::from_mins(1),
    );
    world.apply(&json!(1));
    world.settle();
    assert_eq!(world.last_error(), "the worker was not ready within 200 ms");
    let world = isolated(
        WorkerLauncher::new("/nowhere/worker"),
        Duration::from_mins(1),
    );
    world.apply(&json!(1));
    world.settle();
    assert!(
        world.last_error().contains("could not be started"),
        "{}",
        world.last_error()
    );
}

#[test]
fn a_scheduler_that_stops_ends_its_workers_and_hands_their_passes_over() {
    let mut world = ordinary();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("started");
    let uid = world.apply(&json!({ "do": "hang", "file": file }));
    let started = || std::fs::read_to_string(&file).unwrap_or_default();
    wait_for("the process", || !started().is_empty());
    world.scheduler.take().unwrap().stop(Duration::ZERO);
    assert_eq!(
        world.events(&uid),
        ["resource.created", "reconcile_handed_back"]
    );
    assert_eq!(world.queue().unwrap().consecutive_errors, 0);
    assert!(!is_alive(&started()));
    world.verify();
}

#[test]
fn a_worker_does_not_register_a_name_twice() {
    let worker = PassWorker::new().register(Scripted::new(pass)).unwrap();
    assert!(worker.register(Scripted::new(pass)).is_err());
    // The host keeps its own list.
    let world = World::new(Scripted::new(pass));
    assert!(Controllers::new(&world.workflows, "relative").is_err());
}

/// Whether a process is there and no zombie.
fn is_alive(process: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let state = stat
        .rsplit_once(')')
        .map(|(_, after)| after.trim_start().to_owned());
    state.is_some_and(|state| !state.starts_with('Z'))
}
