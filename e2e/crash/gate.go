package crash

import (
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// lateBy is how much later than its answer a late call is carried out.
const lateBy = 300 * time.Millisecond

// gate is the way of one replica of the provisioner to both clusters.
type gate struct {
	number int
	ledger *ledger
	shut   atomic.Bool
	ways   map[string]*way
}

// way is a proxy on loopback in front of the API server of one cluster.
type way struct {
	gate      *gate
	cluster   string
	target    *url.URL
	transport http.RoundTripper
	proxy     *httputil.ReverseProxy
	server    *httptest.Server
}

// held is a request that is carried out later.
type held struct {
	way     *way
	request *http.Request
	body    []byte
}

func newGate(number int, ledger *ledger, clusters map[string]*rest.Config) (*gate, error) {
	g := &gate{number: number, ledger: ledger, ways: map[string]*way{}}
	for name, config := range clusters {
		target, err := url.Parse(config.Host)
		if err != nil {
			return nil, fmt.Errorf("parse the address of %s: %w", name, err)
		}
		// The callers bring their own tokens.
		transport, err := rest.TransportFor(&rest.Config{Host: config.Host, TLSClientConfig: config.TLSClientConfig})
		if err != nil {
			return nil, fmt.Errorf("make the transport to %s: %w", name, err)
		}
		w := &way{gate: g, cluster: name, target: target, transport: transport, proxy: newProxy(target, transport)}
		w.server = httptest.NewUnstartedServer(w)
		w.server.Config.ErrorLog = log.New(io.Discard, "", 0)
		w.server.StartTLS()
		g.ways[name] = w
	}
	return g, nil
}

func newProxy(target *url.URL, transport http.RoundTripper) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1,
		// Ends of programs are what is tested here.
		ErrorLog: log.New(io.Discard, "", 0),
		Rewrite:  func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) {
			panic(http.ErrAbortHandler)
		},
	}
}

// setShut opens or shuts the gate: nothing gets through while it is shut.
func (g *gate) setShut(shut bool) {
	g.shut.Store(shut)
	if shut {
		for _, w := range g.ways {
			w.server.CloseClientConnections()
		}
	}
}

func (g *gate) close() {
	g.setShut(true)
	for _, w := range g.ways {
		w.server.Close()
	}
}

// through returns a kubeconfig that leads through the gate.
func (g *gate) through(cluster string, kubeconfig []byte) ([]byte, error) {
	config, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	w := g.ways[cluster]
	for _, c := range config.Clusters {
		c.Server = w.server.URL
		c.CertificateAuthorityData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: w.server.Certificate().Raw})
	}
	content, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("encode kubeconfig: %w", err)
	}
	return content, nil
}

func abort() { panic(http.ErrAbortHandler) }

// ServeHTTP passes a request on, unless the case that it is for says otherwise.
func (w *way) ServeHTTP(answer http.ResponseWriter, original *http.Request) {
	if w.gate.shut.Load() {
		abort()
	}
	if w.administered(answer, original) {
		return
	}
	asked, ok := parse(original.Method, original.URL)
	agent := original.UserAgent()
	if !ok || !strings.HasPrefix(agent, string(Provisioner)) && !strings.HasPrefix(agent, string(Agent)) {
		// Others reach west with the kubeconfig of the RemoteCluster too.
		w.proxy.ServeHTTP(answer, original)
		return
	}
	body, err := io.ReadAll(original.Body)
	if err != nil {
		abort()
	}
	original.Body = io.NopCloser(bytes.NewReader(body))
	c := w.gate.ledger.find(asked, original.URL.Path, body)
	if c == nil {
		w.proxy.ServeHTTP(answer, original)
		return
	}
	call := Call{Cluster: w.cluster, Verb: asked.verb, Object: asked.object(w.cluster, w.gate.ledger.isVirtual(asked.name))}
	if !strings.HasPrefix(agent, string(c.Flow.subject())) {
		c.noteUncounted(call)
		w.proxy.ServeHTTP(answer, original)
		return
	}
	w.meet(c, answer, &held{way: w, request: original, body: body}, asked.counted(c.Flow.subject()), call)
}

// meet has a call of the program that the case is about meet its fault, if it is to.
func (w *way) meet(c *Case, answer http.ResponseWriter, h *held, counted bool, call Call) {
	undo := c.note(call, h.body)
	verdict := c.enter(w.gate.number, counted, call)
	if verdict == refuse || verdict == meetFault && !c.Fault.info().comes() {
		undo()
	}
	if verdict != refuse {
		c.abortAt(call)
	}
	switch verdict {
	case refuse:
		if c.Flow.subject() == Agent {
			// It would ask ten times, a second apart, and the namespaces of all cases go one after
			// the other.
			reply(answer, http.StatusInternalServerError)
			return
		}
		abort()
	case meetFault:
		w.meetFault(c, call, answer, h)
	case pass:
		w.proxy.ServeHTTP(answer, h.request)
		if w.gate.number != 1 && call.writes() {
			c.release().send()
		}
	}
}

// meetFault has the fault of a case happen to a request.
func (w *way) meetFault(c *Case, call Call, answer http.ResponseWriter, h *held) {
	info := c.Fault.info()
	if info.mover {
		if !c.hurt(c.Fault) {
			c.faultMissed(call)
		}
		w.proxy.ServeHTTP(answer, h.request)
		return
	}
	if info.lie != nil {
		if !h.belie(info.lie, answer) {
			c.faultMissed(call)
		}
		return
	}
	if info.carried {
		h.send()
	}
	switch c.Fault {
	case TakeoverLate:
		c.hold(h.copy())
	case Late:
		late := h.copy()
		time.AfterFunc(lateBy, late.send)
	default:
	}
	if info.kind != endures {
		c.killCommand()
	}
	if info.code == 0 {
		abort()
	}
	reply(answer, info.code)
}

// copy returns the request without what ends with the program that sent it.
func (h *held) copy() *held {
	return &held{way: h.way, request: h.request.Clone(context.WithoutCancel(h.request.Context())), body: h.body}
}

// send carries a request out; what is answered nobody hears. A nil request is none.
func (h *held) send() {
	if h == nil {
		return
	}
	h.ask()
}

var reasons = map[int]string{
	http.StatusNotFound: "NotFound",
	http.StatusConflict: "Conflict", http.StatusTooManyRequests: "TooManyRequests",
	http.StatusInternalServerError: "InternalError", http.StatusGatewayTimeout: "Timeout",
}

// reply answers as an API server does that cannot do what it is asked.
func reply(answer http.ResponseWriter, code int) {
	answer.Header().Set("Content-Type", "application/json")
	if code == http.StatusTooManyRequests {
		answer.Header().Set("Retry-After", "1")
	}
	answer.WriteHeader(code)
	_, _ = fmt.Fprintf(answer,
		`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"the crash sweep answers %d","reason":%q,"code":%d}`, code,
		reasons[code], code)
}

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
