//! Nor can a change be made of another one: no field of it may be named.
use holdpoint_state::Change;
use holdpoint_state::clock::UnixMillis;

fn forge<'a>(now: UnixMillis, other: Change<'a>) -> Change<'a> {
    let _ = now;
    let other = Change { now, ..other }; //~ E0451
    other
}

fn main() {
    let _: fn(UnixMillis, Change<'static>) -> Change<'static> = forge;
}
