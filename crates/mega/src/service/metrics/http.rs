//! As much of HTTP as a scraper needs: one GET a connection, answered or refused within a second.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::text::Format;

/// The longest time that reading a request or writing an answer may take in all.
const WITHIN: Duration = Duration::from_secs(1);
/// The longest request.
const REQUEST_BYTES: usize = 8 << 10;
/// Written at a time, so that a slow reader is noticed.
const CHUNK_BYTES: usize = 64 << 10;

/// A connection.
pub trait Client: Read + Write {
    /// The longest time of the next read and the next write.
    ///
    /// # Errors
    /// It cannot be set.
    fn patience(&self, time: Duration) -> io::Result<()>;
}

impl Client for UnixStream {
    fn patience(&self, time: Duration) -> io::Result<()> {
        self.set_nonblocking(false)?;
        self.set_read_timeout(Some(time))?;
        self.set_write_timeout(Some(time))
    }
}

impl Client for TcpStream {
    fn patience(&self, time: Duration) -> io::Result<()> {
        self.set_nonblocking(false)?;
        self.set_read_timeout(Some(time))?;
        self.set_write_timeout(Some(time))
    }
}

/// What was asked.
#[derive(Debug, PartialEq, Eq)]
enum Request {
    /// The page, in this format; with its body or not.
    Metrics(Format, bool),
    /// Status and reason.
    Wrong(u16, &'static str),
}

/// Answers one request.
///
/// # Errors
/// The other end is too slow, or gone.
pub fn serve(client: &mut impl Client, page: impl FnOnce(Format) -> String) -> io::Result<()> {
    let (status, reason, kind, body, with_body) = match request(&read(client)?) {
        Request::Metrics(format, with_body) => (200, "OK", format.content_type(), page(format), with_body),
        Request::Wrong(status, reason) => (status, reason, "text/plain; charset=utf-8", format!("{reason}\n"), true),
    };
    let mut answer = format!(
        "HTTP/1.1 {status} {reason}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    if with_body {
        answer.push_str(&body);
    }
    let end = Instant::now() + WITHIN;
    for chunk in answer.as_bytes().chunks(CHUNK_BYTES) {
        client.patience(left(end)?)?;
        client.write_all(chunk)?;
    }
    Ok(())
}

fn left(end: Instant) -> io::Result<Duration> {
    match end.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(io::ErrorKind::TimedOut.into()),
        left => Ok(left),
    }
}

/// Up to the empty line, or to the limit.
fn read(client: &mut impl Client) -> io::Result<Vec<u8>> {
    let end = Instant::now() + WITHIN;
    let (mut request, mut part) = (Vec::new(), [0u8; 1024]);
    while request.len() < REQUEST_BYTES && !request.windows(4).any(|end| end == b"\r\n\r\n") {
        client.patience(left(end)?)?;
        let length = client.read(&mut part)?;
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        request.extend(part.iter().take(length));
    }
    Ok(request)
}

fn request(bytes: &[u8]) -> Request {
    let text = String::from_utf8_lossy(bytes);
    let Some((head, _)) = text.split_once("\r\n\r\n") else {
        return Request::Wrong(431, "Request Header Fields Too Large");
    };
    let mut lines = head.split("\r\n");
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (method, target, version) = (words.next(), words.next().unwrap_or_default(), words.next());
    if !version.is_some_and(|version| version.starts_with("HTTP/1.")) {
        return Request::Wrong(400, "Bad Request");
    }
    let with_body = match method {
        Some("GET") => true,
        Some("HEAD") => false,
        _ => return Request::Wrong(405, "Method Not Allowed"),
    };
    if target.split('?').next() != Some("/metrics") {
        return Request::Wrong(404, "Not Found: the metrics are at /metrics");
    }
    let accept: Vec<&str> = lines
        .filter_map(|line| line.split_once(':'))
        .filter(|(name, _)| name.eq_ignore_ascii_case("accept"))
        .map(|(_, value)| value)
        .collect();
    Request::Metrics(Format::accepted(&accept.join(",")), with_body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_a_get_or_head_of_the_page_is_answered_with_it() {
        let of = |line: &str| request(format!("{line}\r\nHost: x\r\n\r\n").as_bytes());
        assert_eq!(of("GET /metrics HTTP/1.1"), Request::Metrics(Format::Prometheus, true));
        assert_eq!(
            of("GET /metrics?x=1 HTTP/1.0"),
            Request::Metrics(Format::Prometheus, true)
        );
        assert_eq!(
            of("HEAD /metrics HTTP/1.1"),
            Request::Metrics(Format::Prometheus, false)
        );
        assert_eq!(
            of("GET /metrics HTTP/1.1\r\naccept: application/openmetrics-text; version=1.0.0"),
            Request::Metrics(Format::OpenMetrics, true)
        );
        for (line, status) in [
            ("GET / HTTP/1.1", 404),
            ("GET /metrics/../x HTTP/1.1", 404),
            ("POST /metrics HTTP/1.1", 405),
            ("GET /metrics", 400),
            ("", 400),
        ] {
            assert!(
                matches!(of(line), Request::Wrong(found, _) if found == status),
                "{line}: {:?}",
                of(line)
            );
        }
        let long = vec![b'x'; REQUEST_BYTES];
        assert!(matches!(request(&long), Request::Wrong(431, _)));
    }

    #[test]
    fn who_says_or_reads_nothing_is_given_up() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let given_up = |of: io::Result<()>| {
            let kind = of.unwrap_err().kind();
            assert!(
                matches!(kind, io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut),
                "{kind}"
            );
        };
        given_up(serve(&mut ours, |_| String::new()));
        (&theirs).write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        given_up(serve(&mut ours, |_| "x".repeat(16 << 20)));
    }

    /// Says one byte at a time, each after a while.
    struct Slow(u32);

    impl Slow {
        const EACH: Duration = Duration::from_millis(20);
    }

    impl Read for Slow {
        fn read(&mut self, part: &mut [u8]) -> io::Result<usize> {
            std::thread::sleep(Self::EACH);
            self.0 += 1;
            part[0] = b'x';
            Ok(1)
        }
    }

    impl Write for Slow {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Ok(1)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Client for Slow {
        fn patience(&self, _: Duration) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_byte_now_and_then_does_not_prolong_the_second() {
        let mut slow = Slow(0);
        let found = serve(&mut slow, |_| String::new());
        assert_eq!(found.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(Slow::EACH * (slow.0 - 1) <= WITHIN, "{} bytes were read", slow.0);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            request(&bytes);
        }
    }
}
