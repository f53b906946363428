package replicas

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	provisioners "github.com/lodestone-storage/lodestone/provisioner/app"
)

// gate is the way of a program to the API servers of both clusters. The program dies at each kind of write that it sends
// through it, once before that is carried out, and once after, before it hears of it.
type gate struct {
	program string
	// only are the kinds of writes at which it dies.
	only *regexp.Regexp
	// each counts writes to objects of the same kind one by one.
	each bool
	fronts
	// died has the writes at which it died: nothing gets through until it is opened again.
	died chan string

	mu   sync.Mutex
	on   bool
	shut bool
	met  map[string]bool
}

func newGate(t *testing.T, program string) *gate {
	t.Helper()
	only, err := regexp.Compile(os.Getenv("E2E_DEATHS"))
	require.NoError(t, err)
	g := &gate{program: program, only: only, died: make(chan string, 1), met: map[string]bool{}}
	g.fronts = startFronts(t, func(cluster string, proxy *httputil.ReverseProxy) http.Handler { return g.serve(cluster, proxy) })
	return g
}

func (g *gate) serve(cluster string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(answer http.ResponseWriter, request *http.Request) {
		// The virtual node reaches west by the same kubeconfig. Leases are given up by who dies in order; waiting for theirs tests nothing.
		if !strings.HasPrefix(request.UserAgent(), g.program) || strings.Contains(request.URL.Path, "/leases/") ||
			strings.Contains(request.URL.Path, "/secrets/home-epoch-") {
			next.ServeHTTP(answer, request)
			return
		}
		body, err := io.ReadAll(request.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		request.Body = io.NopCloser(bytes.NewReader(body))
		kind := kindOf(cluster, request, body)
		if g.each && kind != "" {
			kind = strings.Join([]string{cluster, request.Method, request.URL.Path}, " ")
		}
		switch g.enter(kind) {
		case "pass":
			next.ServeHTTP(answer, request)
			return
		case "after":
			// It is carried out even if the provisioner ends meanwhile.
			next.ServeHTTP(deaf{httptest.NewRecorder()}, request.WithContext(context.WithoutCancel(request.Context())))
			g.died <- kind + ", after"
		case "before":
			g.died <- kind + ", before"
		case "refuse":
			// Else it would ask ten times, a second apart, before it ends. What it has frozen it would try to thaw for minutes, unless it
			// sees that the replica is gone.
			code := http.StatusInternalServerError
			if request.Method == http.MethodGet {
				code = http.StatusNotFound
			}
			http.Error(answer, "the provisioner is dead", code)
			return
		}
		panic(http.ErrAbortHandler)
	})
}

// enter says what becomes of a request of a kind; empty: it is not counted.
func (g *gate) enter(kind string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.shut:
		return "refuse"
	case kind == "" || !g.on || !g.only.MatchString(kind):
		return "pass"
	case !g.met[kind]:
		g.met[kind], g.shut = true, true
		return "before"
	case !g.met[kind+" after"]:
		g.met[kind+" after"], g.shut = true, true
		return "after"
	}
	return "pass"
}

// deaf takes an answer that nobody hears, also that of a command that is run in a pod.
type deaf struct{ *httptest.ResponseRecorder }

func (deaf) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	near, far := net.Pipe()
	go func() { _, _ = io.Copy(io.Discard, far) }()
	return near, bufio.NewReadWriter(bufio.NewReader(near), bufio.NewWriter(near)), nil
}

// open has requests get through, and from now on kinds of writes be met.
func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.on, g.shut = true, false
}

// deaths is how often the provisioner has died.
func (g *gate) deaths() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.met)
}

var (
	unique   = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}|replicas-[a-z0-9]{6}|[0-9]+|-[a-z0-9]{5}$`)
	recorded = regexp.MustCompile(`"record":"([A-Za-z0-9+/=]+)"`)
	stage    = regexp.MustCompile(`"(?:stage|phase)":"([A-Za-z]+)"`)
)

// kindOf says which kind of write a request is: of which object, without what differs from one to the next, and of a record also at
// which stage or phase. It is empty for reads, and for what is only told.
func kindOf(cluster string, request *http.Request, body []byte) string {
	path := request.URL.Path
	for _, told := range []string{"/events", "/remoteclusters", "/csistoragecapacities", "selfsubject", "/tokenreviews", "/token"} {
		if strings.Contains(path, told) {
			return ""
		}
	}
	if command := request.URL.Query()["command"]; strings.HasSuffix(path, "/exec") {
		return cluster + " runs " + command[len(command)-1]
	}
	if request.Method == http.MethodGet {
		return ""
	}
	at := ""
	if found := recorded.FindSubmatch(body); found != nil {
		if plain, err := base64.StdEncoding.DecodeString(string(found[1])); err == nil {
			body = plain
		}
	}
	if found := stage.FindSubmatch(body); found != nil && strings.Contains(path, "/secrets") {
		at = string(found[1])
	}
	object := unique.ReplaceAllString(strings.Join(strings.Split(path, "/")[3:], "/"), "*")
	return strings.TrimSpace(fmt.Sprintf("%s %s %s %s", cluster, request.Method, object, at))
}

// long skips a test that takes up to a quarter of an hour, unless it is wanted.
func long(t *testing.T) {
	t.Helper()
	if os.Getenv("E2E_LONG") == "" {
		t.Skip("it takes up to a quarter of an hour: set E2E_LONG")
	}
	testbed.Require(t)
}

// dying has the provisioner die at each kind of write from when the gate is opened until the test ends.
func dying(t *testing.T) *gate {
	t.Helper()
	long(t)
	await.Stretch(t, 6)
	g := newGate(t, "lodestone-provisioner")
	ctx := context.WithoutCancel(t.Context())
	_ = provisioner.Stop() // the test before may have started it just now
	direct := g.leadHome(t)
	var err error
	starts := func() error {
		provisioner, err = bed.StartProvisioner(ctx, func(c *provisioners.Config) {
			c.Home = rest.CopyConfig(c.Home)
			c.Home.Host = g.servers[bed.Home.Name()].URL
			c.Home.TLSClientConfig = rest.TLSClientConfig{CAData: g.certificate(bed.Home.Name())}
		})
		return err
	}
	require.NoError(t, starts())
	var all []string
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-over:
				return
			case where := <-g.died:
				all = append(all, where)
				t.Logf("%s dies at: %s", time.Now().Format(time.TimeOnly), where)
				for _, server := range g.servers {
					server.CloseClientConnections()
				}
				_ = provisioner.Stop() // it cannot say good-bye
				g.open()
				if err := starts(); err != nil {
					t.Error(err)
					return
				}
			}
		}
	}()
	t.Cleanup(func() {
		close(over)
		<-ended
		_ = provisioner.Stop()
		direct()
		provisioner, err = bed.StartProvisioner(ctx)
		assert.NoError(t, err)
		slices.Sort(all)
		t.Logf("it died %d times:\n%s", len(all), strings.Join(all, "\n"))
	})
	return g
}

// rounds opens the gate, and has something done again until two rounds in a row have met no new kind of write.
func (g *gate) rounds(t *testing.T, round func(n int)) {
	t.Helper()
	g.open()
	for n, quiet := 1, 0; quiet < 2 && n <= 20; n++ {
		before := g.deaths()
		round(n)
		if quiet++; g.deaths() != before {
			quiet = 0
		}
	}
}

// TestNothingIsLostWhereverTheProvisionerDies has claims copied, failed over, brought back, and their replicas removed, all the time,
// while the provisioner dies at each kind of write.
func TestNothingIsLostWhereverTheProvisionerDies(t *testing.T) {
	g := dying(t)
	t.Run("lives", func(t *testing.T) {
		standbys := []string{"west", keys.Home, "west"}
		var deployed sync.WaitGroup
		deployed.Add(len(standbys))
		for _, standby := range standbys {
			t.Run(standby, func(t *testing.T) {
				t.Parallel()
				primary := keys.Home
				if standby == keys.Home {
					primary = "west"
				}
				namespace := space(t)
				func() {
					defer deployed.Done()
					counts(t, namespace, virtual, primary)
				}()
				deployed.Wait()
				one := life{namespace: namespace, primary: primary, standby: standby, has: sealedInSnapshots}
				g.rounds(t, func(n int) { one.goes(t, n) })
			})
		}
	})
}

// life is of a claim, or of several of one moment, whose replica is made and removed.
type life struct {
	namespace, primary, standby string
	tune                        func(*v1alpha1.VolumeReplica)
	// has fails unless a version is whole, and returns how far the application had counted in it.
	has func(t *testing.T, made *v1alpha1.VolumeReplica, version string) int
}

// sealedInSnapshots is life.has of one claim.
func sealedInSnapshots(t *testing.T, made *v1alpha1.VolumeReplica, version string) int {
	t.Helper()
	if made.Spec.Standbys[0].Cluster == keys.Home {
		return counted(t, contentOf(t, bed.Home, homeDriver, fabric.Storage, version))
	}
	return counted(t, contentOf(t, bed.West, westDriver, made.Namespace, version))
}

// goes has a replica made, sealed twice, failed over to, failed back from, and removed.
func (l *life) goes(t *testing.T, round int) {
	t.Helper()
	made := replicate(t, l.namespace, l.standby, func(r *v1alpha1.VolumeReplica) {
		r.Spec.Versions.Keep = 1
		if l.tune != nil {
			l.tune(r)
		}
	})
	first := sealed(t, made, time.Time{})
	// Writes that a lost answer repeats, or that come late, must not seal what was not compared.
	until(t, "another version is sealed", made, func(now *v1alpha1.VolumeReplica) bool {
		require.NotEmpty(t, versionsOf(now), "once there is a version there always is")
		return now.Status.Standbys[0].Sealed.After(first.Status.Standbys[0].Sealed.Time)
	})
	version := pause(t, made).Status.Standbys[0].Versions[0]
	has := l.has(t, made, version.Name)
	require.Positive(t, has)

	uids, lost := l.claims(t, made)
	over := inPhase(t, failOver(t, fmt.Sprintf("over-%d", round), made, "", v1alpha1.FenceProven), v1alpha1.MoveRetain)
	require.Equal(t, version.Name, over.Status.Failover.Version)
	same, gone := l.claims(t, made)
	require.Equal(t, uids, same)
	for i := range lost {
		require.NotEqual(t, lost[i], gone[i])
	}
	atStandby := beyond(t, l.namespace, has)
	diverged := counted(t, lost[0])
	back := must.Create(t, objects(t).In(l.namespace), &v1alpha1.VolumeMove{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("back-%d", round)},
		Spec: v1alpha1.VolumeMoveSpec{Claims: made.Spec.Claims, Target: v1alpha1.MoveTarget{Cluster: l.primary}, Into: over.Name,
			KeepSourceFor: &metav1.Duration{Duration: time.Second}, TTLSecondsAfterFinished: ptr.To(int32(600))},
	})
	inPhase(t, back, v1alpha1.MoveDone)
	same, again := l.claims(t, made)
	require.Equal(t, uids, same)
	require.Equal(t, lost, again)
	require.GreaterOrEqual(t, counted(t, lost[0]), atStandby, "what was written at the standby came back")
	require.GreaterOrEqual(t, diverged, has)
	act(t, over, v1alpha1.ActionFinalize)
	inPhase(t, over, v1alpha1.MoveDone)
	removes(t, made)
	beyond(t, l.namespace, counted(t, lost[0]))
	for _, name := range []string{over.Name, back.Name} {
		must.Delete(t, objects(t).In(l.namespace), name)
	}
	await.Until(t, "the claims have their volumes, and nothing else is left", func() bool {
		return len(l.beside(t, made, over, back)) == 0
	}, func() any { return l.beside(t, made, over, back) })
}

// claims are the claims' UIDs, and the folders behind them.
func (l *life) claims(t *testing.T, made *v1alpha1.VolumeReplica) (uids []types.UID, folders []string) {
	t.Helper()
	for _, name := range made.Spec.Claims {
		uids = append(uids, await.Claim(t, bed.Home.Client(), l.namespace, name).UID)
		folders = append(folders, bed.Folder(t, l.namespace, name))
	}
	return uids, folders
}

// beside is what there is in both clusters of a replica and its moves, beside the volumes of the claims.
func (l *life) beside(t *testing.T, made *v1alpha1.VolumeReplica, moves ...*v1alpha1.VolumeMove) (found []string) {
	t.Helper()
	labels := []string{keys.GroupPrefix + string(made.UID)}
	for _, move := range moves {
		labels = append(labels, keys.MoveOf+"="+string(move.UID))
	}
	for _, cluster := range []*testbed.Cluster{bed.Home, bed.West} {
		for _, label := range labels {
			names := must.Kubectl(t, cluster, "", "get", "pods,secrets,pvc,volumesnapshots,volumegroupsnapshots", "-A", "-l", label, "-o", "name")
			found = append(found, strings.Fields(names)...)
		}
	}
	there := must.Kubectl(t, bed.West, "", "get", "pvc,volumesnapshots", "-n", l.namespace, "-o", "name")
	if names := strings.Fields(there); l.primary == keys.Home || len(names) != len(made.Spec.Claims) {
		found = append(found, names...)
	}
	return found
}
