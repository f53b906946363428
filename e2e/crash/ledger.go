package crash

import (
	"bytes"
	"regexp"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// prefix begins the names of the cases' namespaces, which no other object has in
// its name.
const prefix = "crash-"

var (
	namespaces = regexp.MustCompile(prefix + `[a-z0-9]{8}`)
	uids       = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
)

// ofMove is in the name of each Secret of a move, before its UID.
var ofMove = []byte("move-")

// learning is how long a request waits until the UID in it is known to belong to
// a case: the program may see a claim a moment before its maker does.
const learning = 300 * time.Millisecond

// ledger knows which case a request is for.
type ledger struct {
	mu     sync.Mutex
	cases  map[string]*Case
	owners map[types.UID]*Case
	// virtual are the UIDs of the cases' claims at home.
	virtual map[types.UID]bool
	// alone is the one case that runs, if there is only one: then requests about
	// what cases share, as a RemoteCluster, are for it.
	alone *Case
}

func newLedger() *ledger {
	return &ledger{cases: map[string]*Case{}, owners: map[types.UID]*Case{}, virtual: map[types.UID]bool{}}
}

func (l *ledger) add(c *Case) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cases[c.Namespace] = c
}

func (l *ledger) setAlone(c *Case) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.alone = c
}

func (l *ledger) isAlone() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.alone != nil
}

// owns notes that an object of a UID belongs to the case of a namespace.
func (l *ledger) owns(namespace string, uid types.UID, virtual bool) *Case {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.cases[namespace]
	if c == nil || uid == "" {
		return nil
	}
	l.owners[uid] = c
	if virtual {
		l.virtual[uid] = true
	}
	return c
}

func (l *ledger) owner(uid types.UID) *Case {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.owners[uid]
}

// named returns the case of a namespace, nil if there is none.
func (l *ledger) named(namespace string) *Case {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cases[namespace]
}

// isVirtual says whether a volume's name is that of a virtual claim's volume.
func (l *ledger) isVirtual(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(name) > 4 && l.virtual[types.UID(name[4:])]
}

// find returns the case that a request is for, nil if it is for none.
func (l *ledger) find(r request, path string, body []byte) *Case {
	if r.resource == "remoteclusters" || r.resource == "secrets" && !bytes.Contains(body, ofMove) && !strings.Contains(path, string(ofMove)) {
		// These name the namespaces of all cases.
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.alone
	}
	for deadline := time.Now().Add(learning); ; time.Sleep(5 * time.Millisecond) {
		c, unknown := l.look(path, body)
		if c != nil || !unknown || time.Now().After(deadline) {
			return c
		}
	}
}

// look returns the case that is named first, and whether there was a UID that may
// be a case's.
func (l *ledger) look(path string, body []byte) (_ *Case, unknown bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, text := range [][]byte{[]byte(path), body} {
		if name := namespaces.Find(text); name != nil {
			return l.cases[string(name)], false
		}
		for _, uid := range uids.FindAll(text, -1) {
			if c := l.owners[types.UID(uid)]; c != nil {
				return c, false
			}
			unknown = true
		}
	}
	return nil, unknown
}
