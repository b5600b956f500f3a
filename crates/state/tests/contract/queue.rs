//! Waiting for the writer: tickets in each form, back-pressure, closing, and waits that would never end.

use std::future::Future as _;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use holdpoint_state::testing::{TestStore, counter};
use holdpoint_state::{Command, Database, Options, Outcome, StateError, Ticket};

fn add() -> Command {
    Command::new(&counter::ADD, counter::resource("c"))
}

fn submit(db: &Database) -> Result<Ticket<i64, StateError>, StateError> {
    db.submit(add(), |change| {
        Ok(Outcome::Accepted(counter::increase(change, 1)?))
    })
}

/// Occupies the writer until the returned sender is dropped.
fn block(db: &Database) -> (mpsc::Sender<()>, Ticket<(), StateError>) {
    let (go, wait) = mpsc::channel::<()>();
    let (started, is_started) = mpsc::channel();
    let ticket = db
        .submit(add(), move |_| {
            let _ = started.send(());
            let _ = wait.recv();
            Ok(Outcome::Refused(()))
        })
        .unwrap();
    is_started.recv().unwrap();
    (go, ticket)
}

fn value(store: &TestStore) -> i64 {
    let db = store.open().unwrap();
    let value = counter::value(&db.snapshot().unwrap(), "c").unwrap();
    value.unwrap()
}

fn small_queue(store: &TestStore, capacity: usize, busy_timeout_ms: u64) -> Database {
    Database::open_with(
        store.path(),
        store.schema(),
        Options {
            queue_capacity: capacity,
            busy_timeout_ms,
            ..store.options()
        },
    )
    .unwrap()
}

fn counters() -> TestStore {
    let store = TestStore::counters().unwrap();
    counter::create(store.db(), "c").unwrap();
    store
}

/// Wakes by unparking a thread, and counts.
struct Unpark(std::thread::Thread, AtomicUsize);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.unpark();
    }
}

#[test]
fn a_ticket_can_be_awaited_without_a_runtime() {
    let store = counters();
    let (go, held) = block(store.db());
    let mut ticket = pin!(submit(store.db()).unwrap());
    // Polled with a waker that does nothing, then with another: the last one is the one that is woken.
    let mut noop = Context::from_waker(Waker::noop());
    assert!(ticket.as_mut().poll(&mut noop).is_pending());
    let unpark = Arc::new(Unpark(std::thread::current(), AtomicUsize::new(0)));
    let waker = Waker::from(Arc::clone(&unpark));
    let mut context = Context::from_waker(&waker);
    assert!(ticket.as_mut().poll(&mut context).is_pending());
    drop(go);
    let receipt = loop {
        match ticket.as_mut().poll(&mut context) {
            Poll::Ready(result) => break result.unwrap(),
            Poll::Pending => std::thread::park(),
        }
    };
    assert_eq!((receipt.revision, receipt.value), (2, 1));
    assert!(unpark.1.load(Ordering::SeqCst) <= 1);
    held.wait().unwrap();
    let done = submit(store.db()).unwrap();
    counter::add(store.db(), "c", 1).unwrap();
    assert!(done.is_done());
    assert_eq!(done.wait().unwrap().value, 2);
}

#[test]
fn a_dropped_ticket_does_not_cancel_its_command() {
    let store = counters();
    let (go, held) = block(store.db());
    drop(submit(store.db()).unwrap());
    drop(go);
    held.wait().unwrap();
    assert_eq!(submit(store.db()).unwrap().wait().unwrap().value, 2);
}

#[test]
fn a_full_queue_makes_its_callers_wait_and_then_says_busy() {
    let store = counters();
    let db = small_queue(&store, 2, 50);
    let (go, held) = block(&db);
    let queued: Vec<_> = (0..2).map(|_| submit(&db).unwrap()).collect();
    let started = now();
    let error = submit(&db).unwrap_err();
    assert!(
        matches!(error, StateError::Busy { waited_ms: 50 }),
        "{error:?}"
    );
    assert!(Duration::from_millis(50) <= started.elapsed());
    drop(go);
    held.wait().unwrap();
    for ticket in queued {
        ticket.wait().unwrap();
    }
    // What was refused left nothing, and there is room again.
    assert_eq!(submit(&db).unwrap().wait().unwrap().value, 3);
}

#[test]
fn room_goes_to_whoever_waits_longest() {
    let store = counters();
    let db = small_queue(&store, 1, 60_000);
    let (go, held) = block(&db);
    let first = submit(&db).unwrap();
    let order = Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut threads = Vec::new();
    for index in 0..4 {
        let (caller, order) = (db.clone(), Arc::clone(&order));
        threads.push(std::thread::spawn(move || {
            let ticket = caller
                .submit(add(), move |change| {
                    order.lock().unwrap().push(index);
                    Ok::<_, StateError>(Outcome::Accepted(counter::increase(change, 1)?))
                })
                .unwrap();
            ticket.wait().unwrap();
        }));
        // The next one comes when this one waits.
        await_waiting(&db, index + 1);
    }
    drop(go);
    held.wait().unwrap();
    first.wait().unwrap();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3]);
}

/// Waits until `count` callers wait for room in the queue.
fn await_waiting(db: &Database, count: usize) {
    let deadline = now() + Duration::from_secs(20);
    while holdpoint_state::testing::waiting_for_room(db) < count {
        assert!(now() < deadline, "nobody waits");
        std::thread::yield_now();
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the test measures real time that a caller waits"
)]
fn now() -> Instant {
    Instant::now()
}

#[test]
fn closing_drains_the_queue() {
    let store = counters();
    let db = store.open().unwrap();
    let other = db.clone();
    let (go, held) = block(&db);
    let queued: Vec<_> = (0..20).map(|_| submit(&db).unwrap()).collect();
    let closer = std::thread::spawn(move || db.close());
    while !matches!(submit(&other), Err(StateError::Closed)) {
        std::thread::yield_now();
    }
    drop(go);
    closer.join().unwrap();
    held.wait().unwrap();
    for ticket in queued {
        assert!(ticket.is_done());
        ticket.wait().unwrap();
    }
    assert!(20 <= value(&store));
}

#[test]
fn everybody_who_closes_returns_when_the_queue_is_drained() {
    let store = counters();
    let db = store.open().unwrap();
    let (go, held) = block(&db);
    let queued = Arc::new(submit(&db).unwrap());
    let (returned, returns) = mpsc::channel();
    let closers: Vec<_> = (0..4)
        .map(|_| {
            let (db, queued, returned) = (db.clone(), Arc::clone(&queued), returned.clone());
            std::thread::spawn(move || {
                db.close();
                returned.send(queued.is_done()).unwrap();
            })
        })
        .collect();
    drop(returned);
    // Nobody may return while the writer is held: whoever does says so here, or at the latest below.
    let early = returns.recv_timeout(Duration::from_millis(200));
    assert!(
        early.is_err(),
        "somebody returned before the queue was drained"
    );
    drop(go);
    held.wait().unwrap();
    let done: Vec<bool> = returns.iter().collect();
    assert_eq!(done, [true; 4]);
    for closer in closers {
        closer.join().unwrap();
    }
}

#[test]
fn closing_at_once_refuses_what_waits() {
    let store = counters();
    let db = small_queue(&store, 3, 60_000);
    let (go, held) = block(&db);
    let queued: Vec<_> = (0..3).map(|_| submit(&db).unwrap()).collect();
    // One more waits for room.
    let waiting = std::thread::spawn({
        let db = db.clone();
        move || submit(&db).map(drop)
    });
    await_waiting(&db, 1);
    let closer = std::thread::spawn(move || db.close_now());
    let refused = waiting.join().unwrap();
    assert!(matches!(refused, Err(StateError::Closed)), "{refused:?}");
    drop(go);
    closer.join().unwrap();
    // The command that was running is committed.
    held.wait().unwrap();
    for ticket in queued {
        let result = ticket.wait();
        assert!(matches!(result, Err(StateError::Closed)), "{result:?}");
    }
    assert_eq!(value(&store), 0);
}

#[test]
fn the_last_handle_may_be_dropped_inside_a_body() {
    let store = counters();
    let db = store.open().unwrap();
    let (send, receive) = mpsc::channel::<Database>();
    let ticket = db
        .submit(add(), move |change| {
            drop(receive.recv());
            Ok::<_, StateError>(Outcome::Accepted(counter::increase(change, 1)?))
        })
        .unwrap();
    let later = submit(&db).unwrap();
    send.send(db).unwrap();
    assert_eq!(ticket.wait().unwrap().value, 1);
    // It was queued before the handle went: closing drains.
    assert_eq!(later.wait().unwrap().value, 2);
    assert_eq!(value(&store), 2);
}

#[test]
fn a_body_that_would_wait_for_itself_is_told_so() {
    let store = counters();
    let db = store.db().clone();
    let error = store
        .db()
        .commit(add(), move |change| {
            counter::increase(change, 1)?;
            counter::add(&db, "c", 10)?;
            Ok::<_, StateError>(Outcome::Accepted(()))
        })
        .unwrap_err();
    assert!(matches!(error, StateError::Misuse { .. }), "{error:?}");
    assert_eq!(value(&store), 0);

    // Nor by a ticket of a command that is queued behind it.
    let (go, held) = block(store.db());
    let (send, receive) = mpsc::channel::<Ticket<i64, StateError>>();
    let waits = store
        .db()
        .submit(add(), move |_| {
            let ticket = receive.recv().unwrap();
            ticket.wait()?;
            Ok::<_, StateError>(Outcome::Accepted(()))
        })
        .unwrap();
    send.send(submit(store.db()).unwrap()).unwrap();
    drop(go);
    held.wait().unwrap();
    let error = waits.wait().unwrap_err();
    assert!(matches!(error, StateError::Misuse { .. }), "{error:?}");
    // The queued command ran all the same.
    assert_eq!(submit(store.db()).unwrap().wait().unwrap().value, 2);

    // Nor by polling one: nobody would wake it.
    let (go, held) = block(store.db());
    let (send, receive) = mpsc::channel::<Ticket<i64, StateError>>();
    let polls = store
        .db()
        .submit(add(), move |_| {
            let mut ticket = pin!(receive.recv().unwrap());
            match ticket
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()))
            {
                Poll::Ready(result) => result.map(|_| Outcome::Accepted(())),
                Poll::Pending => Ok(Outcome::Accepted(())),
            }
        })
        .unwrap();
    send.send(submit(store.db()).unwrap()).unwrap();
    drop(go);
    held.wait().unwrap();
    let error = polls.wait().unwrap_err();
    assert!(matches!(error, StateError::Misuse { .. }), "{error:?}");

    // Another database may be asked: the body waits for another writer.
    let other = counters();
    let elsewhere = other.db().clone();
    store
        .db()
        .commit(add(), move |_| {
            counter::add(&elsewhere, "c", 5)?;
            Ok::<_, StateError>(Outcome::Refused(()))
        })
        .unwrap();
    assert_eq!(value(&other), 5);
}

/// Takes SQLite's own lock when it is woken, as a program would that knows no turnstile.
struct Lock(std::sync::Mutex<rusqlite::Connection>);

impl Wake for Lock {
    fn wake(self: Arc<Self>) {
        let connection = self.0.lock().unwrap();
        // lint:allow(sql-in-test): plays another program, which has no commands.
        connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    }
}

/// The commands of a transaction that is undone run again, one by one. They share one wait for a foreign lock.
#[test]
fn commands_that_run_again_do_not_wait_one_after_the_other() {
    const COMMANDS: u32 = 20;
    const BUSY_MS: u64 = 400;
    let store = counters();
    let db = small_queue(&store, 100, BUSY_MS);
    let (go, held) = block(&db);
    let mut first = pin!(submit(&db).unwrap());
    let lock = Arc::new(Lock(
        rusqlite::Connection::open(store.path()).unwrap().into(),
    ));
    let waker = Waker::from(Arc::clone(&lock));
    let mut context = Context::from_waker(&waker);
    assert!(first.as_mut().poll(&mut context).is_pending());
    let queued: Vec<_> = (0..COMMANDS).map(|_| submit(&db).unwrap()).collect();
    // The last one fails after it wrote: everything before it runs again, and the writer wakes the first one's caller between two
    // transactions, so that the next one meets the lock.
    let failing = db
        .submit(add(), |change| -> Result<Outcome<()>, StateError> {
            counter::increase(change, 1)?;
            Err(StateError::Closed)
        })
        .unwrap();
    drop(go);
    held.wait().unwrap();
    let started = now();
    for ticket in queued {
        let result = ticket.wait();
        assert!(matches!(result, Err(StateError::Busy { .. })), "{result:?}");
    }
    let waited = started.elapsed();
    assert!(
        waited < Duration::from_millis(BUSY_MS) * COMMANDS / 2,
        "{waited:?}"
    );
    failing.wait().unwrap_err();
    // lint:allow(sql-in-test): as above.
    lock.0.lock().unwrap().execute_batch("ROLLBACK").unwrap();
    assert_eq!(submit(&db).unwrap().wait().unwrap().value, 2);
}

/// Sends a command when it is woken, as an executor might that polls on the thread that wakes it.
struct Resubmit(Database, std::sync::Mutex<Option<Result<(), StateError>>>);

impl Wake for Resubmit {
    fn wake(self: Arc<Self>) {
        *self.1.lock().unwrap() = Some(submit(&self.0).map(drop));
    }
}

#[test]
fn the_writer_does_not_wait_for_room_that_only_it_makes() {
    let store = counters();
    let db = Database::open_with(
        store.path(),
        store.schema(),
        Options {
            queue_capacity: 1,
            batch_limit: 1,
            busy_timeout_ms: 60_000,
            ..store.options()
        },
    )
    .unwrap();
    let (go, held) = block(&db);
    let resubmit = Arc::new(Resubmit(db.clone(), std::sync::Mutex::new(None)));
    let waker = Waker::from(Arc::clone(&resubmit));
    let mut held = pin!(held);
    assert!(
        held.as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    );
    // The queue is full when the writer tells of the command that it runs.
    let queued = submit(&db).unwrap();
    drop(go);
    assert_eq!(queued.wait().unwrap().value, 1);
    let woken = resubmit.1.lock().unwrap().take();
    assert!(
        matches!(woken, Some(Err(StateError::Busy { waited_ms: 0 }))),
        "{woken:?}"
    );
}

/// A caller that is ready to wait for ever says so with the largest number there is.
#[test]
fn the_longest_timeout_is_a_timeout() {
    let store = counters();
    let db = small_queue(&store, 2, u64::MAX);
    assert_eq!(submit(&db).unwrap().wait().unwrap().value, 1);
    assert_eq!(
        counter::value(&db.snapshot().unwrap(), "c").unwrap(),
        Some(1)
    );
    let mut follower = db.follow_events(0).unwrap();
    assert_eq!(follower.next_batch(u64::MAX).unwrap().len(), 2);
}

/// The thread that waits for the turnstile in a handle's place gives back what comes too late.
#[test]
fn a_wait_that_was_given_up_blocks_nobody() {
    let store = counters();
    let (go, held) = block(store.db());
    let impatient = small_queue(&store, 2, 50);
    let busy = submit(&impatient).unwrap().wait();
    assert!(matches!(busy, Err(StateError::Busy { .. })), "{busy:?}");
    drop(go);
    held.wait().unwrap();
    // The impatient handle is open still, and idle.
    let other = store.open().unwrap();
    assert_eq!(submit(&other).unwrap().wait().unwrap().value, 1);
    assert_eq!(submit(&impatient).unwrap().wait().unwrap().value, 2);
}
