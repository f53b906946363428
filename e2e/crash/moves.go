package crash

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/volumemoves"
)

// moverImage is what the provisioner calls the mover's image by default.
const moverImage = "lodestone-mover"

// NewMovesWorld starts control planes with all programs of Lodestone, on which pods and
// movers really run; it is for the flows that move volumes, and for no others.
func NewMovesWorld(ctx context.Context, say func(format string, args ...any)) (_ *World, err error) {
	w := newWorld(say)
	w.limits = ofMoves
	mover, err := fabric.BuildMover(ctx)
	if err != nil {
		return nil, err
	}
	if w.Bed, err = fabric.Start(ctx, fabric.Options{
		ControllerManagerQPS: 500, Agent: true, VirtualNode: true, Programs: map[string]string{moverImage: mover},
	}); err != nil {
		return nil, err
	}
	if err := w.prepareMoves(ctx); err != nil {
		w.Stop()
		return nil, err
	}
	return w, nil
}

func (w *World) prepareMoves(ctx context.Context) (err error) {
	if w.moves, err = volumemoves.NewClient(w.Bed.Home.AdminConfig()); err != nil {
		return err
	}
	if _, err := w.Bed.StartExtender(ctx); err != nil {
		return err
	}
	if _, err := w.Bed.StartAgent(ctx); err != nil {
		return err
	}
	// Each case leaves a namespace there.
	kubeconfig, err := w.Bed.Tenant(ctx, func(home *remotev1alpha1.HomeCluster) { home.Spec.Namespaces.Maximum = 5000 })
	if err != nil {
		return err
	}
	if err := w.open(ctx, kubeconfig); err != nil {
		return err
	}
	if err := w.makeClass(ctx, choice, map[string]string{keys.Classes: fabric.WestWait + "," + fabric.WestNow}); err != nil {
		return err
	}
	_, err = w.Bed.StartVirtualNode(ctx)
	return err
}

func (w *World) newHomeNamespace(ctx context.Context, c *Case) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.Namespace, Labels: map[string]string{keys.Offload: keys.OffloadEnabled}}}
	if _, err := w.Bed.Home.Client().CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make namespace %s of home: %w", c.Namespace, err)
	}
	return nil
}

// awaitPlace waits until the remote agent has made a namespace for a case.
func (w *World) awaitPlace(ctx context.Context, c *Case) error {
	ctx, cancel := context.WithTimeoutCause(ctx, w.limits.setUp, fmt.Errorf("west has not given namespace %s", c.Namespace))
	defer cancel()
	for ctx.Err() == nil {
		all, err := w.Bed.West.Client().CoreV1().Namespaces().List(ctx, metav1.ListOptions{LabelSelector: keys.HomeID})
		if err != nil {
			return fmt.Errorf("list the namespaces of west: %w", err)
		}
		for i := range all.Items {
			if home(all.Items[i].Name) == c.Namespace {
				return nil
			}
		}
		time.Sleep(w.limits.often)
	}
	return context.Cause(ctx)
}

// moving is what a case with a move knows of it.
type moving struct {
	uid types.UID
	// from is the cluster of the volume before the move.
	from string
	// source is the folder of the volume before the move, log what the application had
	// written there when it was last looked at.
	source string
	log    string
	// phase is the one that was recorded last, met that at which the fault happened.
	phase, met string
	// status and why are what the VolumeMove said last; over: it is gone.
	status, why string
	over        bool
	// aborted: the user has asked for that.
	aborted bool
	// settled is how many lines the application had written when all else was well.
	settled int
}

// recorded finds the phase in a record of a move.
var (
	recordedPhase = regexp.MustCompile(`"phase":"([A-Za-z]+)","began"`)
	encodedRecord = regexp.MustCompile(`"record":"([A-Za-z0-9+/=]+)"`)
)

// note learns from a request that writes a record in which phase the move is.
func (c *Case) note(call Call, body []byte) {
	if call.Object != "record" || !call.writes() {
		return
	}
	if encoded := encodedRecord.FindSubmatch(body); encoded != nil {
		if plain, err := base64.StdEncoding.DecodeString(string(encoded[1])); err == nil {
			body = plain
		}
	}
	if found := recordedPhase.FindSubmatch(body); found != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.moving.phase = string(found[1])
	}
}

// metAt returns the phase of the move at which the fault happened.
func (c *Case) metAt() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.moving.met
}

// watchMove notes what the VolumeMove says and what the application has written at the
// source. What is written there must be at the target in the end.
func (w *World) watchMove(ctx context.Context, c *Case) error {
	log, err := logOf(c.moving.source)
	if err == nil && log != "" {
		c.moving.log = log
	}
	move, err := w.moves.In(c.Namespace).Get(ctx, moveName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		c.moving.over = true
		return nil
	case err != nil:
		return fmt.Errorf("look at VolumeMove %s: %w", moveName, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.moving.status, c.moving.why = string(move.Status.Phase), move.Status.Message
	return nil
}

// kill kills a mover of a case, which is started again on its node, and says whether
// it ran.
func (w *World) kill(ctx context.Context, c *Case, fault Fault) bool {
	name, cluster, pods := "move-"+string(c.moving.uid)+"-0-source", w.Bed.Home, w.Bed.HomePods
	if fault == KillReceiver {
		name = "move-" + string(c.moving.uid) + "-0-target"
	}
	if fault == KillReceiver || c.moving.from != keys.Home {
		cluster, pods = w.Bed.West, w.Bed.WestPods
	}
	all, err := cluster.Client().CoreV1().Pods("").List(ctx, metav1.ListOptions{LabelSelector: keys.MoveOf + "=" + string(c.moving.uid)})
	if err != nil {
		return false
	}
	for i := range all.Items {
		if pod := &all.Items[i]; pod.Name == name && pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil {
			pods.Kill(pod.Namespace, pod.Name)
			return true
		}
	}
	return false
}

// continues says what is wrong with the application's log in a folder: it must begin
// with all that was written at the source, and count on without a gap.
func continues(log, source string) (lines int, err error) {
	whole := source[:strings.LastIndex(source, "\n")+1]
	if !strings.HasPrefix(log, whole) {
		return 0, errors.New("the log does not begin with what was written before the move")
	}
	log = log[:strings.LastIndex(log, "\n")+1]
	for line := range strings.Lines(log) {
		lines++
		if !strings.HasPrefix(line, fmt.Sprintf("%d ", lines)) {
			return 0, fmt.Errorf("line %d of the log is %q", lines, line)
		}
	}
	return lines, nil
}
