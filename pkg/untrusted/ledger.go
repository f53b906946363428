package untrusted

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// bounds limit what is read of one cluster: bytes as they come, and the weight that scale
// estimates.
type bounds struct {
	// answer is the bytes of one answer, written those of one to a request that
	// writes.
	answer, written int64
	// weight is that of one answer, list that of all pages of a list, and lists that
	// of all lists that are being read. A watch that begins with all there is counts
	// as a list while it is open, but without the insides of its objects: they are
	// made small one by one.
	weight, list, lists int64
	// document is the weight of an object that a watch brings.
	document int64
}

// usual let a cluster of 75,000 volumes be read by watches, and one of 33,000 by
// lists: one of a CSI driver has 2,500 bytes, half of them of who manages its fields.
var usual = bounds{answer: MaxAnswer, written: 4 << 20, weight: 64 << 20, list: 256 << 20, lists: 384 << 20, document: 8 << 20}

// pause is the longest time between two pages of a list.
const pause = time.Minute

// errPaused is the error of asking for a page too late.
var errPaused = errors.New("the API server took too long between the pages of a list")

// ledger counts what was read of one cluster. It is safe for concurrent use.
type ledger struct {
	bounds
	pace *pace
	now  func() time.Time

	mu sync.Mutex
	// lists are those that are being read, by what was asked for.
	lists map[string]*list
}

// list is one that is being read, page by page or by a watch.
type list struct {
	weight int64
	// watched: a watch brings it.
	watched bool
	// reading is how many of its pages are being read, last when one was.
	reading int
	last    time.Time
}

func newLedger(bounds bounds) *ledger {
	return &ledger{bounds: bounds, pace: newPace(watchBurst, watchRate), now: time.Now, lists: map[string]*list{}}
}

// begin returns the list that a request asks for, or for a page of; nil if it asks
// for none. A page that is asked for too late is an error: nobody knows any more
// what came before it.
func (l *ledger) begin(request *http.Request) (*list, error) {
	query := request.URL.Query()
	watched := isWatch(request) && query.Get("sendInitialEvents") == "true"
	if request.Method != http.MethodGet || query.Get("limit") == "" && !watched {
		return nil, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, known := range l.lists {
		if known.reading == 0 && l.now().Sub(known.last) > pause {
			delete(l.lists, key)
		}
	}
	key := strings.Join([]string{request.URL.Path, query.Get("watch"), query.Get("limit"), query.Get("labelSelector"),
		query.Get("fieldSelector")}, "?")
	known := l.lists[key]
	switch {
	case query.Get("continue") == "":
		known = &list{watched: watched}
		l.lists[key] = known
	case known == nil:
		return nil, errPaused
	}
	known.reading++
	return known, nil
}

// end is called when a page was read, or a watch ended.
func (l *ledger) end(of *list) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of.reading--
	of.last = l.now()
	if of.watched {
		of.weight = 0
	}
}

// charge adds to the weight of a list, if it is one.
func (l *ledger) charge(of *list, grown int64) error {
	if of == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	of.weight += grown
	sum := int64(0)
	for _, known := range l.lists {
		sum += known.weight
	}
	if of.weight > l.list || sum > l.bounds.lists {
		return ErrTooLarge
	}
	return nil
}

// page returns the body of an answer, which may be a page of a list.
func (l *ledger) page(request *http.Request, safe io.Reader, closer io.Closer, of *list) io.ReadCloser {
	most := l.answer
	if request.Method != http.MethodGet {
		most = l.written
	}
	return body{&page{ledger: l, reader: &limited{reader: safe, left: most}, scale: &scale{typed: typed(request)}, of: of}, closer}
}

// page is the body of an answer.
type page struct {
	ledger *ledger
	reader io.Reader
	scale  *scale
	of     *list
}

// Read implements io.Reader.
func (p *page) Read(b []byte) (int, error) {
	n, err := p.reader.Read(b)
	before := p.scale.weight
	p.scale.add(b[:n])
	if p.scale.weight > p.ledger.weight {
		return 0, ErrTooLarge
	}
	if err := p.ledger.charge(p.of, p.scale.weight-before); err != nil {
		return 0, err
	}
	return n, err
}

// watch returns the body of a watch, which may bring a list.
func (l *ledger) watch(request *http.Request, safe io.Reader, closer io.Closer, of *list) io.ReadCloser {
	return body{&watched{ctx: request.Context(), ledger: l, reader: safe, scale: &scale{typed: typed(request)}, of: of}, closer}
}

// watched is the body of a watch.
type watched struct {
	ctx    context.Context
	ledger *ledger
	reader io.Reader
	scale  *scale
	of     *list
}

// Read implements io.Reader.
func (w *watched) Read(p []byte) (int, error) {
	if err := w.ledger.pace.await(w.ctx); err != nil {
		return 0, err
	}
	n, err := w.reader.Read(p)
	before := w.scale.documents
	w.scale.add(p[:n])
	grown := int64(n) + (w.scale.documents-before)*perItem
	w.ledger.pace.spend(grown)
	if w.scale.document > w.ledger.document {
		return 0, ErrTooLarge
	}
	if err := w.ledger.charge(w.of, grown); err != nil {
		return 0, err
	}
	return n, err
}

// typed says whether the objects of a request are decoded into types of their own.
// Custom resources may not be.
func typed(request *http.Request) bool {
	return strings.Contains(request.URL.Path, "/api/v1/") || strings.Contains(request.URL.Path, "/apis/storage.k8s.io/")
}

const (
	// perItem estimates the memory that an item of a list, or an object that a watch brings, takes
	// beside its text: {} is two bytes, and a decoded claim takes about a thousand.
	perItem = 1 << 10
	// perValue estimates the memory that any other value takes beside its text.
	perValue = 64
)

// raw is the key of values that decoded objects keep as text: who manages which fields of an
// object.
const raw = "fieldsV1"

// scale estimates the memory, in bytes, that JSON takes once it is decoded. The length of the text
// is no measure: a list of {} takes two hundred times as much. Text that is no JSON need not be
// understood, since none of it is kept in memory.
type scale struct {
	// typed is true where objects are decoded into types of their own, which keep
	// what is below the key raw as text.
	typed bool

	// weight is that of all so far, documents is how many have begun, and document
	// is the weight of the present one.
	weight, document int64
	documents        int64

	depth, quiet     int
	inText, escaped  bool
	inList, afterKey bool
	// matched is how much of raw the present text begins with, -1 if it does not.
	matched int
}

// add weighs what comes next.
func (s *scale) add(text []byte) {
	s.weight += int64(len(text))
	begun := 0 // where in text the present document begins
	for i, c := range text {
		switch {
		case s.escaped:
			s.escaped = false
		case s.inText:
			s.within(c)
		case c == '"':
			s.inText, s.afterKey, s.matched = true, false, 0
		case c == '{' || c == '[':
			if s.depth <= 0 {
				s.depth, s.quiet, s.document, begun = 0, 0, 0, i
			}
			s.open(c)
		case c == '}' || c == ']':
			if s.depth--; s.depth <= s.quiet {
				s.quiet = 0
			}
		case c == ',':
			s.afterKey = false
			s.value(perValue)
		}
	}
	s.document += int64(len(text) - begun)
}

// within follows a text.
func (s *scale) within(c byte) {
	switch {
	case c == '\\':
		s.escaped, s.matched = true, -1
	case c == '"':
		s.inText, s.afterKey = false, s.matched == len(raw)
	case s.matched >= 0 && s.matched < len(raw) && raw[s.matched] == c:
		s.matched++
	default:
		s.matched = -1
	}
}

func (s *scale) open(c byte) {
	switch {
	case s.depth == 0:
		s.documents++
		s.value(perItem)
	case s.depth == 2 && s.inList && c == '{':
		s.value(perItem)
	default:
		s.value(perValue)
	}
	if s.depth == 1 {
		s.inList = c == '['
	}
	if s.typed && s.afterKey && c == '{' && s.quiet == 0 {
		s.quiet = s.depth
	}
	s.afterKey = false
	s.depth++
}

func (s *scale) value(weight int64) {
	if s.quiet == 0 {
		s.weight += weight
		s.document += weight
	}
}
