package bounded

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// bounds are the most of what is read of one cluster: bytes as they come, or the
// weight that scale estimates.
type bounds struct {
	// answer is the bytes of one answer, written those of one to a request that
	// writes.
	answer, written int64
	// weight is that of one answer, list that of all pages of a list, and lists that
	// of all lists that are being read.
	weight, list, lists int64
	// document is the weight of an object that a watch brings. stream is that of all
	// that one watch has brought, streams that of all open watches, the insides of
	// objects not counted: little of these is kept.
	document, stream, streams int64
}

// usual are right for a cluster of 50,000 volumes; on average one has 1,300 bytes
// and as many of who manages its fields.
var usual = bounds{
	answer: MaxAnswer, written: 4 << 20,
	weight: 64 << 20, list: 256 << 20, lists: 384 << 20,
	document: 8 << 20, stream: 256 << 20, streams: 512 << 20,
}

// pause is the longest time between two pages of a list.
const pause = time.Minute

// errPaused is the error of asking for a page too late.
var errPaused = errors.New("the API server took too long between the pages of a list")

// ledger keeps what was read of one cluster. It is safe for concurrent use.
type ledger struct {
	bounds
	pace *pace
	now  func() time.Time

	mu sync.Mutex
	// lists are those that are being read, by what was asked for.
	lists map[string]*list
	// open is what all open watches have brought.
	open int64
}

// list is one that is being read, page by page.
type list struct {
	weight int64
	// reading is how many of its pages are being read, last when one was.
	reading int
	last    time.Time
}

func newLedger(bounds bounds) *ledger {
	return &ledger{bounds: bounds, pace: newPace(watchBurst, watchRate), now: time.Now, lists: map[string]*list{}}
}

// begin returns the list that a request asks for a page of; nil if it asks for none.
func (l *ledger) begin(request *http.Request) (*list, error) {
	query := request.URL.Query()
	if request.Method != http.MethodGet || query.Get("limit") == "" {
		return nil, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, known := range l.lists {
		if known.reading == 0 && l.now().Sub(known.last) > pause {
			delete(l.lists, key)
		}
	}
	key := strings.Join([]string{request.URL.Path, query.Get("limit"), query.Get("labelSelector"), query.Get("fieldSelector")}, "?")
	known := l.lists[key]
	switch {
	case query.Get("continue") == "":
		known = &list{}
		l.lists[key] = known
	case known == nil:
		return nil, errPaused
	}
	known.reading++
	return known, nil
}

// end is called when a page was read.
func (l *ledger) end(of *list) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of.reading--
	of.last = l.now()
}

// page returns the body of an answer, which may be a page of a list.
func (l *ledger) page(request *http.Request, safe io.Reader, closer io.Closer, of *list) io.ReadCloser {
	most := l.answer
	if request.Method != http.MethodGet {
		most = l.written
	}
	s := &scale{typed: typed(request)}
	return body{&weighed{reader: &limited{reader: safe, left: most}, scale: s, check: func(grown int64) error {
		if s.weight > l.weight {
			return ErrTooLarge
		}
		if of == nil {
			return nil
		}
		return l.charge(of, grown)
	}}, closer}
}

func (l *ledger) charge(of *list, grown int64) error {
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

// watch returns the body of a watch.
func (l *ledger) watch(request *http.Request, safe io.Reader, closer io.Closer) io.ReadCloser {
	s := &scale{typed: typed(request)}
	// A watch that only tells changes goes on where it ended. One that began with
	// all there is may not have come to the end of that.
	over := io.EOF
	if request.URL.Query().Get("sendInitialEvents") == "true" {
		over = ErrTooLarge
	}
	return &watched{ctx: request.Context(), ledger: l, reader: safe, closer: closer, scale: s, over: over}
}

// watched is the body of a watch.
type watched struct {
	ctx    context.Context
	ledger *ledger
	reader io.Reader
	closer io.Closer
	scale  *scale
	over   error
	once   sync.Once
	// brought is guarded by the ledger's lock.
	brought int64
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
	w.ledger.mu.Lock()
	defer w.ledger.mu.Unlock()
	w.brought += grown
	w.ledger.open += grown
	if w.brought > w.ledger.stream || w.ledger.open > w.ledger.streams {
		return 0, w.over
	}
	return n, err
}

// Close implements io.Closer.
func (w *watched) Close() error {
	w.once.Do(func() {
		w.ledger.mu.Lock()
		defer w.ledger.mu.Unlock()
		w.ledger.open -= w.brought
		w.brought = 0
	})
	return w.closer.Close()
}

// typed says whether the objects of a request are decoded into types of their own.
// Custom resources may not be.
func typed(request *http.Request) bool {
	return strings.Contains(request.URL.Path, "/api/v1/") || strings.Contains(request.URL.Path, "/apis/storage.k8s.io/")
}
