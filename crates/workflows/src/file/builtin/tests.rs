//! Paths stay inside, files keep what they are, and nothing half written is left.

use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

#[test]
fn writes_whole_files_and_again_the_same() {
    let home = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        let output = write_file_in(home.path(), "notes/a.md", &json!("héllo\n")).unwrap();
        assert_eq!(
            (&output["path"], &output["bytes"]),
            (&json!("notes/a.md"), &json!(7))
        );
        assert_eq!(
            fs::read_to_string(home.path().join("notes/a.md")).unwrap(),
            "héllo\n"
        );
    }
    let read = read_file_in(home.path(), "./notes/a.md").unwrap();
    assert_eq!(read["text"], "héllo\n");
    write_file_in(home.path(), "notes/b.json", &json!({"a": 1})).unwrap();
    assert_eq!(
        fs::read_to_string(home.path().join("notes/b.json")).unwrap(),
        "{\n  \"a\": 1\n}\n"
    );
    let left: Vec<_> = fs::read_dir(home.path().join("notes")).unwrap().collect();
    assert_eq!(left.len(), 2, "no temporary file is left: {left:?}");
}

#[test]
fn paths_that_lead_out_are_refused() {
    let home = tempfile::tempdir().unwrap();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret"), "x").unwrap();
    std::os::unix::fs::symlink(outside.path(), home.path().join("link")).unwrap();
    std::os::unix::fs::symlink(outside.path().join("secret"), home.path().join("file")).unwrap();
    std::os::unix::fs::symlink(outside.path().join("missing"), home.path().join("dangling"))
        .unwrap();
    fs::create_dir(home.path().join("dir")).unwrap();
    let absolute = outside.path().join("secret");
    for path in [
        "",
        ".",
        "..",
        "../x",
        "a/../../x",
        "/x",
        "dir",
        "dir/",
        "link/secret",
        "link/new/x",
        "link/new/deeper/x",
        "dangling/x",
        "file",
        "a\0b",
        absolute.to_str().unwrap(),
    ] {
        assert!(
            write_file_in(home.path(), path, &json!("y")).is_err(),
            "write {path:?}"
        );
        assert!(read_file_in(home.path(), path).is_err(), "read {path:?}");
    }
    assert_eq!(
        fs::read_to_string(outside.path().join("secret")).unwrap(),
        "x"
    );
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
}

#[test]
fn a_temporary_name_that_leads_out_is_not_followed() {
    let home = tempfile::tempdir().unwrap();
    let outside = tempfile::tempdir().unwrap();
    let secret = outside.path().join("secret");
    fs::write(&secret, "x").unwrap();
    let digest = hex(&Sha256::digest(b"y"));
    let temporary = home.path().join(format!(".note.{}.tmp", &digest[..16]));
    std::os::unix::fs::symlink(&secret, &temporary).unwrap();
    write_file_in(home.path(), "note", &json!("y")).unwrap();
    assert_eq!(fs::read_to_string(&secret).unwrap(), "x");
    assert_eq!(fs::read_to_string(home.path().join("note")).unwrap(), "y");
    assert!(fs::symlink_metadata(&temporary).is_err());
}

#[test]
fn links_that_stay_inside_are_followed() {
    let home = tempfile::tempdir().unwrap();
    fs::create_dir(home.path().join("real")).unwrap();
    std::os::unix::fs::symlink("real", home.path().join("way")).unwrap();
    std::os::unix::fs::symlink("real/deep/note", home.path().join("file")).unwrap();
    write_file_in(home.path(), "way/deep/note", &json!("y")).unwrap();
    assert_eq!(
        fs::read_to_string(home.path().join("real/deep/note")).unwrap(),
        "y"
    );
    for path in ["way/deep/note", "file"] {
        assert_eq!(read_file_in(home.path(), path).unwrap()["text"], "y");
    }
}

#[test]
fn a_file_keeps_its_permissions() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("note");
    for mode in [0o600, 0o755, 0o640, 0o666, 0o200] {
        fs::write(&file, "x").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        write_file_in(home.path(), "note", &json!("y")).unwrap();
        let found = fs::metadata(&file).unwrap().permissions().mode() & 0o7777;
        assert_eq!(found, mode, "{found:o} is {mode:o}");
        fs::remove_file(&file).unwrap();
    }
}

#[test]
fn a_file_that_its_owner_may_not_write_stays() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("note");
    fs::write(&file, "x").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o444)).unwrap();
    let error = write_file_in(home.path(), "note", &json!("y")).unwrap_err();
    assert_eq!(
        (error.name(), error.message()),
        (
            "PathError",
            "path \"note\" names a file that its owner may not write"
        )
    );
    assert_eq!(fs::read_to_string(&file).unwrap(), "x");
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
}

#[test]
fn a_directory_that_becomes_a_link_during_the_write_leads_nowhere() {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    let home = tempfile::tempdir().unwrap();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret"), "outside").unwrap();
    let (sub, link) = (home.path().join("sub"), home.path().join("link"));
    fs::create_dir(&sub).unwrap();
    fs::write(sub.join("secret"), "inside").unwrap();
    std::os::unix::fs::symlink(outside.path(), &link).unwrap();
    let done = AtomicBool::new(false);
    let mut written = 0;
    let mut texts = Vec::new();
    std::thread::scope(|scope| {
        let swapping = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                renameat_with(CWD, &sub, CWD, &link, RenameFlags::EXCHANGE).unwrap();
            }
        });
        for number in 0..200 {
            let path = format!("sub/deep{number}/note");
            written += usize::from(write_file_in(home.path(), &path, &json!("y")).is_ok());
            if let Ok(read) = read_file_in(home.path(), "sub/secret") {
                texts.push(read["text"].clone());
            }
        }
        done.store(true, Ordering::Relaxed);
        swapping.join().unwrap();
    });
    assert!(texts.iter().all(|text| text == "inside"), "{texts:?}");
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
    let real = [sub, link]
        .into_iter()
        .find(|path| fs::symlink_metadata(path).is_ok_and(|found| found.is_dir()))
        .unwrap();
    let notes = (0..200)
        .filter(|number| real.join(format!("deep{number}/note")).is_file())
        .count();
    assert_eq!(notes, written, "what is reported as written is inside");
}

#[test]
fn a_pipe_is_refused_and_not_waited_for() {
    let home = tempfile::tempdir().unwrap();
    let pipe = home.path().join("pipe");
    let made = std::process::Command::new("mkfifo")
        .arg(&pipe)
        .status()
        .unwrap();
    assert!(made.success());
    assert!(read_file_in(home.path(), "pipe").is_err());
    assert!(write_file_in(home.path(), "pipe", &json!("y")).is_err());
}

#[test]
fn only_texts_of_an_ordinary_size_are_read() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("binary"), b"\xff").unwrap();
    fs::write(home.path().join("large"), vec![b'x'; 1024 * 1024 + 1]).unwrap();
    fs::write(home.path().join("limit"), vec![b'x'; 1024 * 1024]).unwrap();
    assert!(read_file_in(home.path(), "binary").is_err());
    assert!(read_file_in(home.path(), "large").is_err());
    assert!(read_file_in(home.path(), "limit").is_ok());
    assert!(read_file_in(home.path(), "missing").is_err());
}
