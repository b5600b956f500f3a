//! Guarded operations on real directories, with what others may do there.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use tempfile::TempDir;

use super::*;

fn place(project: &TempDir, uid: &str, directory: &str) -> Place {
    Place {
        project: project.path().canonicalize().unwrap(),
        directory: directory.to_owned(),
        uid: uid.to_owned(),
        resource: format!("file-set/{uid}"),
    }
}

fn names(directory: &std::path::Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_file_is_written_whole_and_removed_with_its_directories() {
    let project = TempDir::new().unwrap();
    let place = place(&project, "one", "out/site");
    assert!(!place.is_claimed().unwrap());
    place.claim().unwrap();
    place.claim().unwrap();
    assert!(place.is_claimed().unwrap());
    assert_eq!(place.look("a/b/c.txt").unwrap(), Seen::Absent);
    place.write("a/b/c.txt", b"first", None).unwrap();
    place.write("a/b/c.txt", b"first", None).unwrap();
    let first = sha256(b"first");
    assert_eq!(place.look("a/b/c.txt").unwrap(), Seen::File(first.clone()));
    let file = project.path().join("out/site/a/b/c.txt");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    place.write("a/b/c.txt", b"second", Some(&first)).unwrap();
    assert_eq!(fs::read(&file).unwrap(), b"second");
    assert_eq!(
        fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o640
    );
    assert_eq!(names(&project.path().join("out/site/a/b")), ["c.txt"]);
    place.remove("a/b/c.txt", &sha256(b"second")).unwrap();
    place.remove("a/b/c.txt", &sha256(b"second")).unwrap();
    assert_eq!(names(&project.path().join("out/site")), [MARKER]);
    place.release().unwrap();
    place.release().unwrap();
    assert_eq!(
        names(&project.path().join("out")),
        [""; 0],
        "the directory was made for it"
    );
}

/// The rest of a process that was killed in the middle goes.
#[test]
fn what_a_crash_left_is_cleared() {
    let project = TempDir::new().unwrap();
    let place = place(&project, "one", "out");
    fs::create_dir(project.path().join("out")).unwrap();
    let rest = project.path().join("out").join(place.temporary_mark());
    fs::write(&rest, "{").unwrap();
    place.claim().unwrap();
    fs::write(&rest, "{").unwrap();
    place.claim().unwrap();
    let half = project
        .path()
        .join("out")
        .join(temporary_of(OsStr::new("a"), &sha256(b"whole")));
    fs::write(&half, "wh").unwrap();
    place.write("a", b"whole", None).unwrap();
    fs::write(&half, "wh").unwrap();
    place.clear("a", &sha256(b"whole")).unwrap();
    place.clear("not/there", &sha256(b"whole")).unwrap();
    assert_eq!(names(&project.path().join("out")), [MARKER, "a"]);
}

#[test]
fn what_somebody_else_wrote_is_not_touched() {
    let project = TempDir::new().unwrap();
    let place = place(&project, "one", "out");
    fs::create_dir(project.path().join("out")).unwrap();
    fs::write(project.path().join("out/theirs"), "theirs").unwrap();
    place.claim().unwrap();
    let changed = |result: Result<(), PlaceError>| {
        assert!(
            matches!(result, Err(PlaceError::Changed { .. })),
            "{result:?}"
        );
    };
    changed(place.write("theirs", b"ours", None));
    changed(place.write("theirs", b"ours", Some(&sha256(b"older"))));
    changed(place.remove("theirs", &sha256(b"ours")));
    assert_eq!(
        fs::read(project.path().join("out/theirs")).unwrap(),
        b"theirs"
    );
    place.release().unwrap();
    assert_eq!(names(&project.path().join("out")), ["theirs"]);
}

#[test]
fn no_link_leads_anywhere() {
    let project = TempDir::new().unwrap();
    let outside = TempDir::new().unwrap();
    fs::write(outside.path().join("secret"), "secret").unwrap();
    let place = place(&project, "one", "out");
    place.claim().unwrap();
    let out = project.path().join("out");
    symlink(outside.path(), out.join("sub")).unwrap();
    symlink(outside.path().join("secret"), out.join("file")).unwrap();
    assert_eq!(place.look("sub/secret").unwrap(), Seen::Other);
    assert_eq!(place.look("file").unwrap(), Seen::Other);
    assert!(place.write("sub/new", b"x", None).is_err());
    assert!(place.write("file", b"x", Some(&sha256(b"secret"))).is_err());
    assert!(place.remove("sub/secret", &sha256(b"secret")).is_err());
    assert!(place.remove("file", &sha256(b"secret")).is_err());
    // The rest of a killed attempt may have become a link.
    let temporary = format!(".new.{}.tmp", &sha256(b"new")[..16]);
    symlink(outside.path().join("secret"), out.join(&temporary)).unwrap();
    place.write("new", b"new", None).unwrap();
    // The directory itself is swapped for a link.
    fs::rename(&out, project.path().join("moved")).unwrap();
    symlink(outside.path(), &out).unwrap();
    assert!(matches!(place.is_claimed(), Err(PlaceError::Way { .. })));
    assert!(place.write("new", b"x", None).is_err());
    assert!(place.claim().is_err());
    assert_eq!(names(outside.path()), ["secret"]);
    assert_eq!(fs::read(outside.path().join("secret")).unwrap(), b"secret");
}

#[test]
fn a_pipe_is_not_waited_for_and_a_directory_is_no_file() {
    let project = TempDir::new().unwrap();
    let place = place(&project, "one", "out");
    place.claim().unwrap();
    let out = project.path().join("out");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        out.join("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    fs::create_dir(out.join("directory")).unwrap();
    fs::File::create(out.join("large"))
        .unwrap()
        .set_len(FILE_MAX_BYTES + 1)
        .unwrap();
    assert_eq!(place.look("pipe").unwrap(), Seen::Other);
    assert_eq!(place.look("directory").unwrap(), Seen::Other);
    assert_eq!(place.look("large").unwrap(), Seen::Large);
    assert_eq!(place.look("large/beneath").unwrap(), Seen::Other);
}

#[test]
fn one_directory_belongs_to_one_resource() {
    let project = TempDir::new().unwrap();
    let (one, two) = (place(&project, "one", "out"), place(&project, "two", "out"));
    one.claim().unwrap();
    let taken = |result: Result<(), PlaceError>| {
        let error = result.unwrap_err();
        assert!(
            error
                .to_string()
                .contains("belongs to the resource file-set/one (one)"),
            "{error}"
        );
    };
    taken(two.claim());
    taken(two.write("a", b"a", None));
    // Neither above nor beneath.
    taken(place(&project, "two", "out/sub").claim());
    let above = place(&project, "two", ".");
    taken(
        Place {
            directory: "out/..".to_owned(),
            ..above
        }
        .claim(),
    );
    two.release().unwrap_err();
    one.release().unwrap();
    two.claim().unwrap();
    // A mark that nobody can read keeps everybody out.
    fs::write(project.path().join("out").join(MARKER), "{").unwrap();
    assert!(matches!(two.is_claimed(), Err(PlaceError::Taken { .. })));
}

#[test]
fn of_many_that_claim_at_once_one_has_it() {
    let project = TempDir::new().unwrap();
    let start = std::sync::Barrier::new(8);
    let won: usize = std::thread::scope(|scope| {
        let claims: Vec<_> = (0..8)
            .map(|number| {
                let (project, start) = (&project, &start);
                scope.spawn(move || {
                    let place = place(project, &number.to_string(), "a/b");
                    start.wait();
                    usize::from(place.claim().is_ok())
                })
            })
            .collect();
        claims.into_iter().map(|claim| claim.join().unwrap()).sum()
    });
    assert_eq!(won, 1);
    assert_eq!(names(&project.path().join("a/b")), [MARKER]);
}
