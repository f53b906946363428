package remotepods

import (
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// link is the way from home's programs to the API server of west: it can be cut
// while west itself works, and it can lose and delay requests.
type link struct {
	server *httptest.Server
	proxy  *httputil.ReverseProxy
	west   *url.URL

	mu     sync.Mutex
	broken bool
	// heed is asked of every write of the virtual node program.
	heed func(*http.Request) fate
	kept []*http.Request
}

// fate is what becomes of a request.
type fate int

const (
	passes    fate = iota
	loses          // it never arrives
	unreplied      // it arrives, and its answer is lost
	late           // it is kept until deliver
)

// newLink returns a link and the kubeconfig that goes over it.
func newLink(config *rest.Config, kubeconfig []byte) (*link, []byte, error) {
	west, err := url.Parse(config.Host)
	if err != nil {
		return nil, nil, fmt.Errorf("read the address of west: %w", err)
	}
	transport, err := rest.TransportFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: config.CAData}})
	if err != nil {
		return nil, nil, fmt.Errorf("make a transport to west: %w", err)
	}
	l := &link{west: west, proxy: &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(west) },
		Transport:     transport,
		FlushInterval: -1,
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}}
	l.server = httptest.NewUnstartedServer(l)
	l.server.EnableHTTP2 = true
	l.server.StartTLS()
	loaded, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil, nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	for _, cluster := range loaded.Clusters {
		cluster.Server = l.server.URL
		cluster.CertificateAuthorityData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: l.server.Certificate().Raw})
	}
	changed, err := clientcmd.Write(*loaded)
	return l, changed, err
}

func (l *link) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch l.decide(r) {
	case loses, late:
		panic(http.ErrAbortHandler)
	case unreplied:
		l.proxy.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	case passes:
		l.proxy.ServeHTTP(w, r)
	}
}

func (l *link) decide(r *http.Request) fate {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken {
		return loses
	}
	if l.heed == nil || r.Method == http.MethodGet || !strings.HasPrefix(r.UserAgent(), "lodestone-virtualnode") || !aboutPods(r.URL.Path) {
		return passes
	}
	what := l.heed(r)
	if what == late {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return loses
		}
		kept := r.Clone(context.Background())
		kept.RequestURI, kept.Host = "", ""
		kept.URL.Scheme, kept.URL.Host = l.west.Scheme, l.west.Host
		kept.Body = io.NopCloser(bytes.NewReader(body))
		l.kept = append(l.kept, kept)
	}
	return what
}

// aboutPods says whether a request is about pods or ShadowPods.
func aboutPods(path string) bool {
	return strings.Contains(path, "/shadowpods") || strings.Contains(path, "/pods")
}

// heeds sets what becomes of the writes of the virtual node program, nil for
// nothing out of the ordinary.
func (l *link) heeds(heed func(*http.Request) fate) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heed = heed
}

// cut cuts the link, and mend mends it.
func (l *link) cut() {
	l.mu.Lock()
	l.broken = true
	l.mu.Unlock()
	l.server.CloseClientConnections()
}

func (l *link) mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.broken = false
}

// deliver lets the kept requests arrive, and returns the status of each.
func (l *link) deliver() ([]int, error) {
	l.mu.Lock()
	kept := l.kept
	l.kept = nil
	l.mu.Unlock()
	var statuses []int
	for _, request := range kept {
		response, err := l.proxy.Transport.RoundTrip(request)
		if err != nil {
			return statuses, err
		}
		statuses = append(statuses, response.StatusCode)
		_ = response.Body.Close()
	}
	return statuses, nil
}
