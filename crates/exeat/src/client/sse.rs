//! Server-sent events (WHATWG HTML, 9.2), as far as our own server sends them.

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    /// Its id, for `Last-Event-ID`.
    pub(crate) id: Option<String>,
    /// Its kind; `message` if it names none.
    pub(crate) event: String,
    /// Its data.
    pub(crate) data: String,
}

/// Bytes to events. Holds at most one unfinished event, of bounded size.
#[derive(Default)]
pub(crate) struct Reader {
    line: Vec<u8>,
    id: Option<String>,
    event: Option<String>,
    data: Option<String>,
    after_cr: bool,
}

/// An event that is larger than ours can be.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLarge;

const EVENT_BYTES: usize = 8 << 20;

impl Reader {
    /// Reads on; gives the events that are whole.
    pub(crate) fn read(&mut self, bytes: &[u8]) -> Result<Vec<Event>, TooLarge> {
        let mut events = Vec::new();
        for &b in bytes {
            let second_of_crlf = self.after_cr && b == b'\n';
            self.after_cr = b == b'\r';
            match b {
                _ if second_of_crlf => {}
                b'\n' | b'\r' => {
                    let line = std::mem::take(&mut self.line);
                    events.extend(self.end_of_line(&String::from_utf8_lossy(&line)));
                }
                _ => self.line.push(b),
            }
            if self.line.len() + self.data.as_ref().map_or(0, String::len) > EVENT_BYTES {
                return Err(TooLarge);
            }
        }
        Ok(events)
    }

    fn end_of_line(&mut self, line: &str) -> Option<Event> {
        if line.is_empty() {
            let (event, id) = (self.event.take(), self.id.take());
            let data = self.data.take()?;
            return Some(Event { id, event: event.unwrap_or_else(|| "message".to_owned()), data });
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "id" => self.id = Some(value.to_owned()),
            "event" => self.event = Some(value.to_owned()),
            "data" => match &mut self.data {
                Some(d) => {
                    d.push('\n');
                    d.push_str(value);
                }
                none => *none = Some(value.to_owned()),
            },
            // A comment (empty field) keeps the connection alive; other fields aren't ours.
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(id: Option<&str>, event: &str, data: &str) -> Event {
        Event { id: id.map(str::to_owned), event: event.to_owned(), data: data.to_owned() }
    }

    const STREAM: &str = ": hello\n\nid: 1\nevent: step\ndata: {\"a\":\ndata: 1}\n\n\r\nid:2\r\ndata:x\r\n\r\nevent: no-data\n\ndata: unfinished";

    #[test]
    fn events_are_the_same_however_the_bytes_are_cut() {
        let whole = Reader::default().read(STREAM.as_bytes()).unwrap();
        assert_eq!(whole, [event(Some("1"), "step", "{\"a\":\n1}"), event(Some("2"), "message", "x")]);
        for size in 1..7 {
            let mut reader = Reader::default();
            let cut: Vec<_> = STREAM.as_bytes().chunks(size).flat_map(|c| reader.read(c).unwrap()).collect();
            assert_eq!(cut, whole, "pieces of {size}");
        }
    }

    #[test]
    fn an_event_without_end_is_given_up() {
        let mut reader = Reader::default();
        let piece = vec![b'x'; 1 << 20];
        let read = (0..9).try_for_each(|_| reader.read(&piece).map(|_| ()));
        assert_eq!(read, Err(TooLarge));
    }
}
