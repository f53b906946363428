// Package story tells what Lodestone does, step by step, on two real control
// planes, and checks each thing that it tells. `make demo` shows it with the
// commands and the output that a user would see; `make demo-check` runs the same
// story with nothing but its checks.
//
// A step is a title, a few plain words and a list of acts: a command that is run
// and shown, something done to the clusters, or a check. The first check that
// fails ends the story, since what follows builds on it.
package story

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// Options say how the story is told.
type Options struct {
	// Out is where it is told; in colours if that is a terminal.
	Out io.Writer
	// Terse leaves out all but titles and checks.
	Terse bool
	// Keep leaves everything running at the end, until the context of Run ends.
	Keep bool
}

// Run tells the story and stops all that it started. It returns nil if every check
// passed. The error says in one sentence why not; if ctx ended first, it is that of
// ctx.
func Run(ctx context.Context, o Options) error {
	// The played nodes log each retry while a cluster is away.
	klog.SetLogger(logr.Discard())
	s := &story{
		options: o, console: newConsole(o.Out, o.Terse), began: time.Now(), ledger: newLedger(),
		patience: 60 * time.Second, consistently: 3 * time.Second,
	}
	steps := s.steps()
	defer s.end()
	err := s.play(ctx, steps)
	s.sum(err, len(steps))
	if o.Keep && s.fabric != nil && ctx.Err() == nil {
		s.guide()
		<-ctx.Done()
		s.console.line("\nStopping.")
		return err
	}
	return err
}

// story is the state of one telling.
type story struct {
	options          Options
	console          *console
	began            time.Time
	passes, failures int
	told             int // steps that were begun

	patience     time.Duration // the most that a check waits
	consistently time.Duration // how long something must stay as it is

	programs
	fabric   *fabric.Fabric
	contexts string // a kubeconfig with a context for each cluster
	ledger   *ledger
	homes    []*volume // the four replicas' volumes whose data is at home
	wests    []*volume // those whose data is in west
	doomed   *volume   // the one whose claim is deleted while west is away
	retains  []*volume // those of the class with reclaim policy Retain
}

type step struct {
	title, words string
	// acts is called when the step begins, so it may use what earlier steps found.
	acts func() []act
}

func (s *story) steps() []step {
	return []step{
		s.build(), s.start(), s.runPrograms(), s.peer(),
		s.spread(), s.behind(),
		s.follow(), s.wait(), s.offload(), s.scale(),
		s.remove(), s.retain(),
		s.outage(), s.takeOver(), s.comeBack(),
		s.settle(),
	}
}

func (s *story) play(ctx context.Context, steps []step) error {
	for _, step := range steps {
		s.told++
		s.console.title(s.told, step.title, step.words)
		for _, act := range step.acts() {
			if err := act(ctx); err != nil {
				return s.explain(ctx, err)
			}
		}
	}
	return nil
}

// explain shows what helps to understand why the story ended early.
func (s *story) explain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if !errors.Is(err, errCheck) {
		_ = s.failed("what the step does", err)
	}
	if s.fabric == nil {
		return errors.New("the story could not be told")
	}
	s.fabric.Home.KeepLogs()
	s.fabric.West.KeepLogs()
	for _, in := range []where{home, west} {
		for _, args := range [][]string{
			{"get", "pods,pvc", "-A", "-o", "wide"},
			{"get", "events", "-A", "--sort-by=.lastTimestamp"},
		} {
			s.console.line("\n    %s$ %s", in, s.typed(args))
			output, kubectlErr := s.cluster(in).Kubectl(ctx, "", args...)
			s.console.line("%s", output)
			if kubectlErr != nil {
				s.console.line("%v", kubectlErr)
			}
		}
	}
	return errors.New("the story did not go as told")
}

// sum ends the story with the table of claims and the count of checks.
func (s *story) sum(err error, steps int) {
	if err == nil || s.ledger.len() > 0 {
		s.table()
	}
	took := time.Since(s.began).Round(time.Second)
	s.console.line("")
	switch {
	case errors.Is(err, context.Canceled):
		s.console.line("Interrupted in step %d of %d.", s.told, steps)
	case err != nil:
		s.console.line("The story ended in step %d of %d; what follows was not tried.", s.told, steps)
	case !s.options.Terse:
		s.console.line("All went as told, in %v. SIMULATED were nodes, pods and the real storage classes; the control planes and Lodestone "+
			"itself are real.", took)
	}
	s.console.line("%d passed, %d failed", s.passes, s.failures)
}

// end stops all that runs.
func (s *story) end() {
	s.ledger.stop()
	if s.fabric != nil {
		s.fabric.Stop()
	}
	testbed.StopAll()
}

func (s *story) guide() {
	s.console.line(`
Everything is left running until you press Ctrl-C. In another terminal:

  alias home=%s
  alias west=%s

Each is kubectl with all rights on its cluster. Worth trying:

  home get nodes -L lodestone.dev/cluster
  home get remoteclusters
  home get pv -L lodestone.dev/cluster
  home get pvc -n lodestone-storage
  west get pvc,pods -n shop -o wide
  home get events -n shop --field-selector involvedObject.kind=PersistentVolumeClaim
  home delete pod db-0 -n shop && home get pods -n shop -o wide -w

Kubeconfigs:   %s
               %s
Logs:          %s
               %s`,
		s.fabric.Home.KubectlPath(), s.fabric.West.KubectlPath(),
		s.fabric.Home.Kubeconfig(), s.fabric.West.Kubeconfig(),
		s.fabric.Home.LogDirectory(), s.fabric.West.LogDirectory())
}

// counted returns an error unless a number is what it should be.
func counted(what string, have, want int) error {
	if have != want {
		return fmt.Errorf("there are %d %s instead of %d", have, what, want)
	}
	return nil
}

const (
	// often is how often a check looks.
	often = 50 * time.Millisecond

	// sayAfter is when a check that waits says so.
	sayAfter = 4 * time.Second
)

// act is one thing that happens in a step. Its error ends the story.
type act func(context.Context) error

// probe returns nil if something is as it should be, otherwise how it is instead.
type probe func(context.Context) error

// errCheck is the error of a check that failed and was shown.
var errCheck = errors.New("a check failed")

// until checks that a probe succeeds before long.
func (s *story) until(text string, holds probe) act {
	return func(ctx context.Context) error {
		started := time.Now()
		said := false
		waiting, cancel := context.WithTimeout(ctx, s.patience)
		defer cancel()
		var last error
		for {
			err := holds(waiting)
			switch {
			case err == nil:
				return s.passed(text, time.Since(started))
			case ctx.Err() != nil:
				return ctx.Err()
			case last == nil || waiting.Err() == nil:
				last = err // what the end of the time itself brings about says nothing
			}
			if waiting.Err() != nil {
				return s.failed(text, fmt.Errorf("not so after %v: %w", s.patience, last))
			}
			if !said && time.Since(started) > sayAfter {
				said = true
				s.console.waiting(text)
			}
			sleep(waiting, often)
		}
	}
}

// throughout checks that a probe succeeds now and for a while, and still after
// it: a slow machine may have no time for a look in between.
func (s *story) throughout(text string, holds probe) act {
	return func(ctx context.Context) error {
		started := time.Now()
		for over := false; !over; sleep(ctx, often) {
			over = time.Since(started) >= s.consistently
			if err := holds(ctx); ctx.Err() != nil {
				return ctx.Err()
			} else if err != nil {
				return s.failed(text, fmt.Errorf("no longer so after %.1f s: %w", time.Since(started).Seconds(), err))
			}
		}
		return s.passed(fmt.Sprintf("%s, watched for %v", text, s.consistently), 0)
	}
}

// now checks that a probe succeeds.
func (s *story) now(text string, holds probe) act {
	return func(ctx context.Context) error {
		if err := holds(ctx); ctx.Err() != nil {
			return ctx.Err()
		} else if err != nil {
			return s.failed(text, err)
		}
		return s.passed(text, 0)
	}
}

func (s *story) passed(text string, took time.Duration) error {
	s.passes++
	s.console.ok(text, took)
	return nil
}

func (s *story) failed(text string, err error) error {
	s.failures++
	s.console.failed(text, err)
	return errCheck
}

// kubectl runs a command in a cluster and shows it as a user would type it, with
// its output.
func (s *story) kubectl(in where, args ...string) act {
	return func(ctx context.Context) error {
		s.console.command(string(in), s.typed(args))
		output, err := s.cluster(in).Kubectl(ctx, "", args...)
		if err != nil {
			return err
		}
		s.console.output(output)
		return nil
	}
}

// apply applies a file of the source tree at home.
func (s *story) apply(file string) act {
	return s.kubectl(home, "apply", "-f", filepath.Join(fabric.Root(), file))
}

// do does what no command does.
func (s *story) do(text string, work func(context.Context) error) act {
	return func(ctx context.Context) error {
		s.console.tell("")
		s.console.note(text)
		return work(ctx)
	}
}

// say tells something between other acts.
func (s *story) say(text string) act {
	return s.do(text, func(context.Context) error { return nil })
}

// where names one of the two clusters.
type where string

const (
	home where = "home"
	west where = "west"
)

func (s *story) cluster(in where) *testbed.Cluster {
	if in == home {
		return s.fabric.Home
	}
	return s.fabric.West
}

var plain = regexp.MustCompile(`^[A-Za-z0-9_./:=,@+-]+$`)

// typed is a kubectl command as one would type it at the root of the source tree.
func (s *story) typed(args []string) string {
	words := []string{"kubectl"}
	for _, arg := range args {
		arg = strings.TrimPrefix(arg, fabric.Root()+string(filepath.Separator))
		if !plain.MatchString(arg) {
			arg = "'" + arg + "'"
		}
		words = append(words, arg)
	}
	return strings.Join(words, " ")
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// table prints the virtual claims that there are, from whatever can be read.
func (s *story) table() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	client := s.fabric.Home.Client().CoreV1()
	nodes := map[string]string{} // by claim
	if pods, err := client.Pods("").List(ctx, metav1.ListOptions{}); err == nil {
		for _, pod := range pods.Items {
			for _, volume := range pod.Spec.Volumes {
				if volume.PersistentVolumeClaim != nil {
					nodes[pod.Namespace+"/"+volume.PersistentVolumeClaim.ClaimName] = pod.Spec.NodeName
				}
			}
		}
	}
	volumes := map[string]corev1.PersistentVolume{}
	if list, err := client.PersistentVolumes().List(ctx, metav1.ListOptions{LabelSelector: keys.Cluster}); err == nil {
		for _, volume := range list.Items {
			volumes[volume.Name] = volume
		}
	}
	claims, err := s.ledger.claims.List(labels.Everything())
	if err != nil {
		return
	}
	var rows []row
	for _, claim := range claims {
		if claim.Labels[keys.ClaimUID] != "" {
			continue
		}
		r := row{claim: claim.Namespace + "/" + claim.Name, cluster: "-", backing: "-", node: "-", times: s.ledger.of(claim.UID)}
		if volume, ok := volumes[claim.Spec.VolumeName]; ok {
			r.cluster = volume.Labels[keys.Cluster]
			_, path, _ := strings.Cut(volume.Annotations[keys.Backing], "/")
			r.backing = path[:max(0, strings.LastIndex(path, "/"))]
		}
		if node := nodes[r.claim]; node != "" {
			r.node = node
		}
		rows = append(rows, r)
	}
	s.print(rows)
	s.console.tell("The claims of batch waited for storage that was made slow and for a new leader, notes and late for their place in west.")
	if deleted := s.ledger.len() - len(rows); deleted > 0 {
		s.console.line("%d more claims were deleted on the way.", deleted)
	}
}

// ledger watches the claims of the home cluster and notes when each got its node
// and its volume.
type ledger struct {
	mu     sync.Mutex
	times  map[types.UID]*times
	claims corelisters.PersistentVolumeClaimLister
	cancel context.CancelFunc
	wait   func()
}

// times are when a claim was first seen, got its node and was bound.
type times struct{ seen, scheduled, bound time.Time }

func newLedger() *ledger {
	return &ledger{times: map[types.UID]*times{}, cancel: func() {}, wait: func() {}}
}

// start begins to watch, until stop is called or ctx ends.
func (l *ledger) start(ctx context.Context, client kubernetes.Interface) error {
	ctx, l.cancel = context.WithCancel(ctx)
	factory := informers.NewSharedInformerFactory(client, 0)
	claims := factory.Core().V1().PersistentVolumeClaims()
	_, err := claims.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    l.note,
		UpdateFunc: func(_, obj any) { l.note(obj) },
	})
	if err != nil {
		return fmt.Errorf("watch claims: %w", err)
	}
	l.claims = claims.Lister()
	factory.StartWithContext(ctx)
	l.wait = factory.Shutdown
	if !cache.WaitForCacheSync(ctx.Done(), claims.Informer().HasSynced) {
		return fmt.Errorf("read the claims: %w", ctx.Err())
	}
	return nil
}

func (l *ledger) stop() {
	l.cancel()
	l.wait()
}

func (l *ledger) note(obj any) {
	claim, ok := obj.(*corev1.PersistentVolumeClaim)
	if !ok || claim.Labels[keys.ClaimUID] != "" {
		return // not a virtual claim, but one behind it
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	at := time.Now()
	t := l.times[claim.UID]
	if t == nil {
		t = &times{seen: at}
		l.times[claim.UID] = t
	}
	if t.scheduled.IsZero() && claim.Annotations[keys.SelectedNode] != "" {
		t.scheduled = at
	}
	if t.bound.IsZero() && claim.Status.Phase == corev1.ClaimBound {
		t.bound = at
	}
}

// len returns how many claims were ever seen.
func (l *ledger) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.times)
}

func (l *ledger) of(claim types.UID) times {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t := l.times[claim]; t != nil {
		return *t
	}
	return times{}
}

// row is what the table tells of a claim.
type row struct {
	claim, cluster, backing, node string
	times
}

// print writes the table.
func (s *story) print(rows []row) {
	slices.SortFunc(rows, func(a, b row) int { return cmp.Compare(a.claim, b.claim) })
	s.console.mu.Lock()
	defer s.console.mu.Unlock()
	fmt.Fprintln(s.console.out)
	w := tabwriter.NewWriter(s.console.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "CLAIM\tCLUSTER\tBACKING CLAIM\tNODE\tTIME TO BOUND\tSINCE ITS NODE WAS CHOSEN")
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", r.claim, r.cluster, r.backing, r.node, span(r.seen, r.bound), span(r.scheduled, r.bound))
	}
	_ = w.Flush()
}

func span(from, to time.Time) string {
	if from.IsZero() || to.IsZero() {
		return "-"
	}
	return fmt.Sprintf("%.2f s", to.Sub(from).Seconds())
}
