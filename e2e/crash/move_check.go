package crash

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/processes"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// movedWell says what is wrong with moves that must be over and forgotten, whether they
// were committed or went back: nil if each claim is bound to one whole copy in which the
// application goes on, no pod was ever where it could not have its volume, and nothing
// else is left.
func (w *World) movedWell(c *Case, v *View) error {
	claims := c.moving.trip.claims
	switch {
	case c.moving.torn != "":
		return errors.New(c.moving.torn)
	case !c.moving.over:
		return fmt.Errorf("the move is in phase %s: %s", c.moving.status, c.moving.why)
	case len(v.Claims) != len(claims) || len(v.Volumes) != len(claims):
		return fmt.Errorf("there are %d claims and %d volumes", len(v.Claims), len(v.Volumes))
	}
	copies := len(claims) * (len(c.moving.uids) + 1)
	if err := once(c, copies, copies); err != nil {
		return err
	}
	if len(v.Backings) != len(claims) || len(v.Reals) != len(claims) || len(w.data(c)) != len(claims) {
		return fmt.Errorf("there are %d backing claims, %d real volumes and the data of %v", len(v.Backings), len(v.Reals), w.data(c))
	}
	for _, name := range claims {
		if err := w.settled(v, name); err != nil {
			return err
		}
	}
	spaces := []string{c.Namespace}
	for _, b := range v.Backings {
		if v.clusterOf(b) != keys.Home {
			spaces = append(spaces, b.Namespace)
		}
	}
	violations := w.Bed.HomeNodes.Violations(c.Namespace)
	for _, remote := range w.remotes {
		violations = append(violations, remote.bed.WestNodes.Violations(spaces...)...)
	}
	if len(violations) > 0 {
		return errors.New(violations[0].String())
	}
	if err := all(w.nothingLeft(context.Background(), c), w.emptied(c)); err != nil {
		return err
	}
	for _, name := range claims {
		_, _, reals := v.of(v.Claim(name).UID)
		if err := w.goesOn(c.moving.volumes[name], reals[0]); err != nil {
			return fmt.Errorf("claim %s: %w", name, err)
		}
	}
	return nil
}

// settled says what is wrong with a claim after a move.
func (w *World) settled(v *View, name string) error {
	claim := v.Claim(name)
	if claim == nil {
		return fmt.Errorf("claim %s is gone", name)
	}
	backings, volumes, reals := v.of(claim.UID)
	if len(volumes) != 1 {
		return fmt.Errorf("claim %s has %d volumes", name, len(volumes))
	}
	if err := w.bound(v, name, volumes[0].Labels[keys.Cluster]); err != nil {
		return err
	}
	switch b := backings[0]; {
	case slices.Contains(claim.Finalizers, keys.MoveFinalizer), claim.Annotations[keys.Move] != "", claim.Annotations[keys.MoveTouched] != "",
		claim.Labels[keys.Moving] != "":
		return fmt.Errorf("the move has left traces on claim %s: %v %v %v", name, claim.Finalizers, claim.Annotations, claim.Labels)
	case b.Labels[keys.MoveOf] != "":
		return fmt.Errorf("backing claim %s is still the move's", b.Name)
	case reals[0].Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete:
		return fmt.Errorf("real volume %s has policy %s", reals[0].Name, reals[0].Spec.PersistentVolumeReclaimPolicy)
	}
	return nil
}

// movedTo is movedWell, and without a fault the volumes must be where they were to go; and
// if a class was asked for, there under another name than the claim's, which the source
// had. A fault may also end a move. All claims of a group are in one cluster.
func (w *World) movedTo(c *Case, v *View, t trip) error {
	if err := all(w.movedWell(c, v), together(v)); err != nil || c.Fault != "" {
		return err
	}
	cluster, b := v.Volumes[0].Labels[keys.Cluster], v.Backings[0]
	switch {
	case cluster != t.to:
		return fmt.Errorf("the volume is in cluster %s: %s", cluster, c.moving.why)
	case t.real != "" && (ptr.Deref(b.Spec.StorageClassName, "") != t.real || b.Name == data):
		return fmt.Errorf("the volume is in claim %s of class %s: %s", b.Name, ptr.Deref(b.Spec.StorageClassName, ""), c.moving.why)
	}
	return nil
}

// stayed is movedWell, and without a fault the move must have been aborted, and the volumes
// be where they were.
func (w *World) stayed(c *Case, v *View, t trip) error {
	if err := all(w.movedWell(c, v), together(v)); err != nil || c.Fault != "" {
		return err
	}
	if cluster := v.Volumes[0].Labels[keys.Cluster]; !c.moving.aborted || cluster != t.from {
		return fmt.Errorf("the user aborted: %v, and the volume is in cluster %s: %s", c.moving.aborted, cluster, c.moving.why)
	}
	return nil
}

// together says whether volumes are in different clusters.
func together(v *View) error {
	for _, volume := range v.Volumes {
		if volume.Labels[keys.Cluster] != v.Volumes[0].Labels[keys.Cluster] {
			return fmt.Errorf("the volumes of one pod are in clusters %s and %s", v.Volumes[0].Labels[keys.Cluster], volume.Labels[keys.Cluster])
		}
	}
	return nil
}

// goesOn says whether the application counts on in a volume that holds all it wrote, and
// the ballast.
func (w *World) goesOn(t *tracked, real *corev1.PersistentVolume) error {
	at, err := w.diskOf(real)
	if err != nil {
		return err
	}
	log, err := at.log()
	if err != nil {
		return fmt.Errorf("read the log: %w", err)
	}
	lines, err := continues(log, t.log)
	switch {
	case err != nil:
		return err
	case t.settled == 0:
		t.settled = lines
		fallthrough
	case lines < t.settled+5:
		return fmt.Errorf("the application does not count on: %d lines, of which %d are from before", lines, t.settled)
	}
	if sum, err := at.sum(); err != nil || sum != t.ballast {
		return errors.Join(errors.New("what lay in the volume beside the log is not what it was"), err)
	}
	return nil
}

// moving is what a case with a move knows of it.
type moving struct {
	trip trip
	// name and uids are those of the VolumeMoves: the last one goes on.
	name    string
	uids    []types.UID
	volumes map[string]*tracked
	// phase is the one that was recorded last, met that at which the fault happened.
	phase, met string
	// status and why are what the VolumeMove said last; over: it is gone.
	status, why string
	over        bool
	// abort, if not nil, has the user ask for that, at what the provisioner writes in a
	// phase; aborted: it was asked for.
	abort   *abortion
	aborted bool
	// repository is the cluster whose object store the content travels through, as the
	// VolumeMove says; snapshot: a snapshot was taken.
	repository string
	snapshot   bool
	// torn says when no copy of a claim was whole; empty: there always was one.
	torn string
}

// tracked is what is known of a claim's volume.
type tracked struct {
	disk
	// log is what the application had written where the volume was before the move, when it
	// was last looked at; ballast the sum of what lies beside it.
	log     string
	ballast [sha256.Size]byte
	// settled is how many lines there were when all else was well.
	settled int
}

// fill writes the ballast once: a second move carries that of the first.
func (t *tracked) fill() (err error) {
	if t.ballast == [sha256.Size]byte{} {
		t.ballast, err = t.disk.fill()
	}
	return err
}

// track remembers where the volume of a claim is.
func (m *moving) track(claim string, at disk) {
	if m.volumes == nil {
		m.volumes = map[string]*tracked{}
	}
	if m.volumes[claim] == nil {
		m.volumes[claim] = &tracked{}
	}
	m.volumes[claim].disk = at
}

// recorded finds the phase in a record of a move.
var (
	recordedPhase = regexp.MustCompile(`"phase":"([A-Za-z]+)","began"`)
	encodedRecord = regexp.MustCompile(`"record":"([A-Za-z0-9+/=]+)"`)
)

// note learns from a request that writes a record in which phase the move is. undo is for a
// request that is not carried out.
func (c *Case) note(call Call, body []byte) (undo func()) {
	if call.Object != "record" || !call.writes() {
		return func() {}
	}
	if encoded := encodedRecord.FindSubmatch(body); encoded != nil {
		if plain, err := base64.StdEncoding.DecodeString(string(encoded[1])); err == nil {
			body = plain
		}
	}
	found := recordedPhase.FindSubmatch(body)
	if found == nil {
		return func() {}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.moving.phase
	c.moving.phase = string(found[1])
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.moving.phase = before
	}
}

// abortion is when a user aborts a move: at the first write of an object in a phase.
type abortion struct {
	phase, object string
	ask           func() error
}

// abortAt has the user abort the move at a call, if that is the one.
func (c *Case) abortAt(call Call) {
	c.mu.Lock()
	a := c.moving.abort
	now := a != nil && call.writes() && a.phase == c.moving.phase && a.object == call.Object && !c.moving.aborted
	c.mu.Unlock()
	if !now || a.ask() != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.moving.aborted = true
}

// metAt returns the phase of the move at which the fault happened.
func (c *Case) metAt() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.moving.met
}

// watchMove notes what the VolumeMove says, what the application has written at the
// source, which must be at the target in the end, and whether there is a whole copy.
func (w *World) watchMove(ctx context.Context, c *Case, v *View) error {
	for name, volume := range c.moving.volumes {
		if log, err := volume.disk.log(); err == nil && log != "" {
			volume.log = log
		}
		if c.moving.torn == "" && !w.wholeSomewhere(v, name) {
			c.moving.torn = fmt.Sprintf("in phase %s no copy of claim %s was whole", c.moving.status, name)
		}
	}
	move, err := w.moves.In(c.Namespace).Get(ctx, c.moving.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		c.moving.over = true
		return nil
	case err != nil:
		return fmt.Errorf("look at VolumeMove %s: %w", c.moving.name, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.moving.status, c.moving.why = string(move.Status.Phase), move.Status.Message
	if len(move.Status.Claims) > 0 {
		c.moving.repository = move.Status.Claims[0].Repository
	}
	return nil
}

// wholeSomewhere says whether a real volume of a claim is in its storage, with a ballast of
// full size; what is in that is read in the end.
func (w *World) wholeSomewhere(v *View, name string) bool {
	claim := v.Claim(name)
	if claim == nil {
		return false
	}
	_, _, reals := v.of(claim.UID)
	for _, real := range reals {
		if at, err := w.diskOf(real); err == nil && !w.missing(real) && at.laden() {
			return true
		}
	}
	return false
}

// dataPort is where movers wait for each other.
const dataPort = 8440

// mover is one that runs.
type mover struct {
	*corev1.Pod
	pods *processes.Processes
}

// hurt has a fault of the movers of a case happen, and says whether there was what it is
// about. What it kills is started again on its node.
func (w *World) hurt(ctx context.Context, c *Case, fault Fault) bool {
	c.mu.Lock()
	uid, t := c.moving.uids[len(c.moving.uids)-1], c.moving.trip
	c.mu.Unlock()
	source := w.mover(ctx, t.from, fmt.Sprintf("move-%s-0-source", uid), fmt.Sprintf("move-%s-0-snapshot", uid))
	target := w.mover(ctx, t.to, fmt.Sprintf("move-%s-%d-target", uid, len(t.claims)-1))
	switch {
	case fault == KillSource && source != nil:
		source.pods.Kill(source.Namespace, source.Name)
	case fault == KillReceiver && target != nil:
		target.pods.Kill(target.Namespace, target.Name)
	case fault == CutStream && target != nil:
		return cut(ctx, target.Status.PodIP)
	default:
		return false
	}
	return true
}

// mover returns the first mover that runs in a cluster under one of some names; nil: none.
func (w *World) mover(ctx context.Context, in string, names ...string) *mover {
	cluster, pods := w.Bed.Home, w.Bed.HomePods
	if in != keys.Home {
		there := w.remote(in)
		cluster, pods = there.bed.West, there.bed.WestPods
	}
	all, err := cluster.Client().CoreV1().Pods("").List(ctx, metav1.ListOptions{LabelSelector: keys.MoveOf})
	if err != nil {
		return nil
	}
	for i := range all.Items {
		pod := &all.Items[i]
		for _, name := range names {
			if pod.Name == name && pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil {
				return &mover{pod, pods}
			}
		}
	}
	return nil
}

// cut ends all connections over which data comes to a mover, and says whether there was
// one: whoever dialled it, and the mover, find them reset.
func cut(ctx context.Context, address string) bool {
	out, err := exec.CommandContext(ctx, "ss", "--kill", "--no-header", "--tcp", "--numeric", "state", "established",
		fmt.Sprintf("dst %s and dport = %d", address, dataPort)).Output()
	return err == nil && strings.TrimSpace(string(out)) != ""
}
