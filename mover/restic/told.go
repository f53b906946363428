package restic

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
)

// Told is what restic says while it runs.
type Told struct {
	// Done is told how many bytes of files are dealt with so far; Waits is told, in words,
	// what restic tries again.
	Done  func(bytes int64)
	Waits func(why string)

	summary summary
	// latest is its latest message.
	latest message
	// done says that restic came to its end, well or badly.
	done bool
	// first are its first complaints, last is the last one after them.
	first []string
	last  string
}

// summary is what restic says at its end.
type summary struct {
	Snapshot string
	Packed   int64
}

// message is a line of restic's output.
type message struct {
	Type     string `json:"message_type"`
	Done     int64  `json:"bytes_done"`
	Restored int64  `json:"bytes_restored"`
	Files    int64  `json:"files_done"`
	Written  int64  `json:"files_restored"`
	Snapshot string `json:"snapshot_id"`
	Packed   int64  `json:"data_added_packed"`
}

// take takes a line of restic's output, and says whether there is news in it: restic tells
// how far it is also when it gets no further.
func (t *Told) take(line []byte) (news bool) {
	var m message
	if json.Unmarshal(line, &m) != nil {
		return false
	}
	news, t.latest = m != t.latest, m
	switch m.Type {
	case "status":
		if t.Done != nil {
			t.Done(max(m.Done, m.Restored))
		}
	case "summary":
		t.done, t.summary = true, summary{Snapshot: m.Snapshot, Packed: m.Packed}
	}
	return news
}

// complaint is a line of restic's complaints, where that is JSON.
type complaint struct {
	Message string `json:"message"`
	Item    string `json:"item"`
	Error   struct {
		Message string `json:"message"`
	} `json:"error"`
}

var retrying = regexp.MustCompile(`retrying after [0-9.a-zµ]+: (.*)`)

// mostSaid is how many complaints are kept, besides the last one.
const mostSaid = 3

// complain takes a line of restic's complaints, which is news unless it is empty: who tries
// again is not silent.
func (t *Told) complain(line []byte) (news bool) {
	said := string(line)
	var c complaint
	if json.Unmarshal(line, &c) == nil {
		if said = c.Message + c.Error.Message; c.Item != "" {
			said = c.Item + ": " + said
		}
	}
	if said = brief(said); said == "" {
		return false
	}
	if found := retrying.FindStringSubmatch(said); found != nil && t.Waits != nil {
		t.Waits(found[1])
	}
	if len(t.first) < mostSaid {
		t.first = append(t.first, said)
	} else {
		t.last = said
	}
	return true
}

// said is what restic has complained about, in one line.
func (t *Told) said() string {
	all := t.first
	if t.last != "" {
		all = append(slices.Clone(all), t.last)
	}
	return strings.Join(all, "; ")
}

// brief is the first line of what a program has said, of which no more is kept than people
// read.
func brief(said string) string {
	said, _, _ = strings.Cut(strings.TrimSpace(said), "\n")
	if len(said) > 300 {
		said = strings.ToValidUTF8(said[:300], "") + "…"
	}
	return said
}

// watcher gives a function, which says whether there is news in it, each line that is
// written to it; the rest of lines that are too long is thrown away.
type watcher struct {
	line  func([]byte) bool
	heard *ears
	kept  []byte
}

const longestLine = 64 << 10

// Write implements io.Writer.
func (w *watcher) Write(p []byte) (int, error) {
	w.heard.bytes.Add(int64(len(p)))
	for rest := p; len(rest) > 0; {
		head, tail, ended := bytes.Cut(rest, []byte("\n"))
		if len(w.kept)+len(head) <= longestLine {
			w.kept = append(w.kept, head...)
		}
		if ended {
			if w.line(w.kept) {
				w.heard.news.Add(1)
			}
			w.kept = w.kept[:0]
		}
		rest = tail
	}
	return len(p), nil
}
