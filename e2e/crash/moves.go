package crash

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/processes"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// moverImage is what the provisioner calls the mover's image by default.
const moverImage = "lodestone-mover"

// NewMovesWorld starts control planes with all programs of Lodestone, on which pods and
// movers really run; it is for the flows that move volumes, and for no others.
func NewMovesWorld(ctx context.Context, say func(format string, args ...any)) (*World, error) {
	return newMovesWorld(ctx, say, false)
}

// NewWideWorld is NewMovesWorld with a second remote cluster.
func NewWideWorld(ctx context.Context, say func(format string, args ...any)) (*World, error) {
	return newMovesWorld(ctx, say, true)
}

func newMovesWorld(ctx context.Context, say func(format string, args ...any), wide bool) (*World, error) {
	mover, err := fabric.BuildMover(ctx)
	if err != nil {
		return nil, err
	}
	programs := map[string]string{moverImage: mover}
	w, err := newWorld(ctx, say, fabric.Options{Agent: true, VirtualNode: true, Programs: programs})
	if err != nil {
		return nil, err
	}
	w.limits = ofMoves
	if wide {
		err = w.joinEast(ctx, programs)
	}
	if err == nil {
		err = w.prepareMoves(ctx)
	}
	if err != nil {
		w.Stop()
		return nil, err
	}
	return w, nil
}

func (w *World) prepareMoves(ctx context.Context) (err error) {
	if w.moves, err = clients.NewVolumeMoveClient(w.Bed.Home.AdminConfig()); err != nil {
		return err
	}
	if err := w.takeForMoves(ctx); err != nil {
		return err
	}
	if _, err := w.Bed.StartExtender(ctx); err != nil {
		return err
	}
	if _, err := w.Bed.StartAgent(ctx); err != nil {
		return err
	}
	kubeconfigs, err := w.serveHome(ctx)
	if err != nil {
		return err
	}
	if err := w.open(ctx, kubeconfigs); err != nil {
		return err
	}
	for name, parameters := range map[string]map[string]string{
		choice: {keys.Classes: fabric.WestWait + "," + fabric.WestNow},
		either: {keys.LocalClass: fabric.HomeWait, keys.RemoteClass: fabric.WestNow},
	} {
		if err := w.makeClass(ctx, name, parameters); err != nil {
			return err
		}
	}
	_, err = w.Bed.StartVirtualNode(ctx)
	return err
}

func (w *World) newHomeNamespace(ctx context.Context, c *Case) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.Namespace,
		Labels: map[string]string{keys.Offload: keys.OffloadEnabled}}}
	if _, err := w.Bed.Home.Client().CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make namespace %s of home: %w", c.Namespace, err)
	}
	return nil
}

// awaitPlaces waits until the remote agents have given a case its namespaces: a claim that
// waits for long would be sent elsewhere.
func (w *World) awaitPlaces(ctx context.Context, c *Case) error {
	for _, remote := range w.remotes {
		if err := remote.awaitPlace(ctx, c, w.limits); err != nil {
			return err
		}
	}
	return nil
}

func (r *remote) awaitPlace(ctx context.Context, c *Case, l limits) error {
	ctx, cancel := context.WithTimeoutCause(ctx, l.setUp, fmt.Errorf("%s has not given namespace %s", r.name, c.Namespace))
	defer cancel()
	for ctx.Err() == nil {
		requests, err := r.bed.Agents.NamespaceRequests(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: metav1.ObjectNameField +
			"=" + c.Namespace})
		if err != nil {
			return fmt.Errorf("look at the request for namespace %s: %w", c.Namespace, err)
		}
		for i := range requests.Items {
			if meta.IsStatusConditionTrue(requests.Items[i].Status.Conditions, remotev1alpha1.Ready) {
				return nil
			}
		}
		time.Sleep(l.often)
	}
	return context.Cause(ctx)
}

var (
	outward  = trip{class: fabric.Class, node: "home-1", from: keys.Home, to: "west", claims: []string{data}}
	homeward = trip{class: either, node: fabric.WestNode, from: "west", to: keys.Home, claims: []string{data}}
)

// moveFlows move volumes, for a world with movers.
func moveFlows() []Flow {
	group, block := outward, outward
	group.claims, block.block = []string{data, more}, true
	// In west the claim's own name is taken until the move is over.
	between := trip{class: either, node: fabric.WestNode, from: "west", to: east, claims: []string{data}}
	within := trip{class: choice, node: fabric.WestNode, from: "west", to: "west", real: fabric.WestNow, claims: []string{data}}
	return []Flow{
		outward.lied("move-out"), homeward.flow("move-home"), within.flow("move-within"), group.flow("move-group"), block.flow("move-block"),
		outward.aborted("move-abort", abortion{phase: string(v1alpha1.MovePreCopy), object: "volumemove.status"}),
		// Then the virtual volume is about to be deleted, or is gone.
		outward.aborted("move-abort-fence", abortion{phase: string(v1alpha1.MoveFence), object: "volume"}),
		outward.aborted("move-abort-final", abortion{phase: string(v1alpha1.MoveFinalSync), object: "volumemove.status"}),
		rolledBack("move-rollback"), backInto("move-into"),
		outward.snapshotted("move-snapshot"), outward.stored("move-store"), between.wide("move-between"),
	}
}

// target is the make target that runs a flow.
func target(flow string) string {
	if f, err := FlowOf(flow); err == nil && f.Moves {
		return "crash-move"
	}
	return "crash"
}

// lied is a flow of moves in which the remote cluster lies too.
func (t trip) lied(name string) Flow {
	f := t.flow(name)
	f.Lied = true
	return f
}

// wide is a flow of moves between remote clusters.
func (t trip) wide(name string) Flow {
	f := t.flow(name)
	f.Wide = true
	return f
}

// aborted is a flow of moves that their user aborts.
func (t trip) aborted(name string, when abortion) Flow {
	f := t.flow(name)
	f.Act = func(ctx context.Context, w *World, c *Case) error {
		at := when
		at.ask = func() error { return w.ask(context.WithoutCancel(ctx), c, v1alpha1.ActionAbort) }
		c.mu.Lock()
		c.moving.abort = &at
		c.mu.Unlock()
		return w.begin(ctx, c, moveName, t)
	}
	f.Want = func(w *World, c *Case, v *View) error { return w.stayed(c, v, t) }
	return f
}

// ask has the user ask for an action of the move that goes on.
func (w *World) ask(ctx context.Context, c *Case, action v1alpha1.MoveAction) error {
	return w.askOf(ctx, c, c.moving.name, action)
}

// askOf has the user ask for an action of a move that may be gone.
func (w *World) askOf(ctx context.Context, c *Case, move string, action v1alpha1.MoveAction) error {
	patch := fmt.Appendf(nil, `{"spec":{"action":%q}}`, action)
	_, err := w.moves.In(c.Namespace).Patch(ctx, move, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("ask for %s of VolumeMove %s: %w", action, move, err)
	}
	return nil
}

// rolledBack is a flow of a move that is rolled back as kubectl lodestone does it: another move
// takes all data back, and the copy that the first one keeps is removed once that is committed.
func rolledBack(name string) Flow { return thereAndBack(name, "") }

// backInto is a flow of a move that is rolled back into the copy that the first one keeps, of which a snapshot is taken.
func backInto(name string) Flow {
	f := thereAndBack(name, moveName)
	play, want := f.Play, f.Want
	f.Play = func(ctx context.Context, w *World, c *Case, v *View) error {
		return errors.Join(w.playMoveSnapshot(ctx, c, v), play(ctx, w, c, v))
	}
	f.Want = func(w *World, c *Case, v *View) error {
		return all(want(w, c, v), w.noSnapshot(context.Background(), c), snapshotSeen(c))
	}
	return f
}

// thereAndBack is a flow of two moves: the first one, which keeps its copy, is made before, and the second takes the data back.
func thereAndBack(name, into string) Flow {
	there, back := outward, homeward
	there.class, there.keep, back.class, back.into = either, time.Hour, either, into
	f := there.flow(name)
	f.Setup = func(ctx context.Context, w *World, c *Case) error {
		if err := there.deploy(ctx, w, c); err != nil {
			return err
		}
		err := w.awaitCase(ctx, c, func(v *View) error { return w.counts(c, v, there.from) })
		if err != nil {
			return err
		}
		if err := w.begin(ctx, c, moveName, there); err != nil {
			return err
		}
		return w.awaitCase(ctx, c, func(v *View) error {
			if err := w.watchMove(ctx, c, v); err != nil || c.moving.status == string(v1alpha1.MoveRetain) {
				return err
			}
			return fmt.Errorf("the move is in phase %s: %s", c.moving.status, c.moving.why)
		})
	}
	f.Ready = func(w *World, c *Case, v *View) error { return w.countsAmong(c, v, there.to) }
	f.Act = func(ctx context.Context, w *World, c *Case) error { return w.begin(ctx, c, "back", back) }
	f.Play = func(ctx context.Context, w *World, c *Case, v *View) error {
		if err := w.watchMove(ctx, c, v); err != nil || !c.moving.over || len(v.Volumes) != 1 || v.Volumes[0].Labels[keys.Cluster] != back.from {
			return err
		}
		// The way back came to nothing, so the first move keeps its copy until its user wants it gone.
		return w.askOf(ctx, c, moveName, v1alpha1.ActionFinalize)
	}
	f.Want = func(w *World, c *Case, v *View) error { return w.movedTo(c, v, back) }
	return f
}

const (
	moveName = "move"
	// limit is that of the moves in bytes a second: a pass takes seconds.
	limit = "3Mi"
	// more is the name of the second claim of a group.
	more = "more"
)

// trip is what a case moves.
type trip struct {
	// class is the virtual class of the claims, whose volumes are first where node is, which
	// is in the cluster from.
	class, node, from string
	// to is the cluster of the target, real the real class that is asked for there; empty:
	// none.
	to, real string
	claims   []string
	// block has the volumes be block devices.
	block bool
	// single has the claims be for one pod.
	single bool
	// keep is for how long the copy at the source is kept.
	keep time.Duration
	// into is the move into whose kept copy the data goes back; empty: none.
	into string
}

// flow is a flow of moves of its kind, which must end at the target.
func (t trip) flow(name string) Flow {
	return Flow{
		Name: name, Reads: 1, Moves: true,
		Setup: t.deploy,
		Ready: func(w *World, c *Case, v *View) error { return w.counts(c, v, t.from) },
		Act:   func(ctx context.Context, w *World, c *Case) error { return w.begin(ctx, c, moveName, t) },
		Play:  func(ctx context.Context, w *World, c *Case, v *View) error { return w.watchMove(ctx, c, v) },
		Want:  func(w *World, c *Case, v *View) error { return w.movedTo(c, v, t) },
	}
}

// deploy makes the claims, and once they have their volumes a Deployment that counts in
// them and may run anywhere.
func (t trip) deploy(ctx context.Context, w *World, c *Case) error {
	for _, name := range t.claims {
		if err := w.create(ctx, c, name, t.class, t.node, t.shape); err != nil {
			return err
		}
	}
	c.moving.trip = t
	if t.class == either {
		// Else the scheduler might choose another node with the pod.
		if err := w.awaitClaims(ctx, c); err != nil {
			return err
		}
	}
	return w.deploy(ctx, c, t)
}

// awaitClaims waits until the claims of a case have their volumes.
func (w *World) awaitClaims(ctx context.Context, c *Case) error {
	return w.awaitCase(ctx, c, func(v *View) (missing error) {
		for _, name := range c.moving.trip.claims {
			missing = errors.Join(missing, w.bound(v, name, c.moving.trip.from))
		}
		return missing
	})
}

// awaitCase waits during the set-up of a case until nothing is missing.
func (w *World) awaitCase(ctx context.Context, c *Case, missing func(*View) error) error {
	for deadline := time.Now().Add(w.limits.setUp); ; time.Sleep(w.limits.often) {
		switch err := missing(w.view(c)); {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case time.Now().After(deadline):
			return fmt.Errorf("set-up of %s: %w", c.Namespace, err)
		}
	}
}

func (t trip) shape(claim *corev1.PersistentVolumeClaim) {
	if t.single {
		claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
	}
	if t.block {
		claim.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeBlock)
		claim.Spec.Resources.Requests[corev1.ResourceStorage] = *resource.NewQuantity(deviceSize, resource.BinarySI)
	}
}

// begin makes a VolumeMove that takes a trip from where the claims are, and has nothing
// kept of it.
func (w *World) begin(ctx context.Context, c *Case, name string, t trip) error {
	for _, claim := range t.claims {
		if err := c.moving.volumes[claim].fill(); err != nil {
			return err
		}
	}
	made, err := w.moves.In(c.Namespace).Create(ctx, &v1alpha1.VolumeMove{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.VolumeMoveSpec{
			Claims: t.claims, Target: v1alpha1.MoveTarget{Cluster: t.to}, ClassName: t.real, Into: t.into,
			KeepSourceFor: &metav1.Duration{Duration: max(t.keep, time.Second)}, TTLSecondsAfterFinished: ptr.To(int32(1)),
			BandwidthLimit: ptr.To(resource.MustParse(limit)),
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("make a VolumeMove in %s: %w", c.Namespace, err)
	}
	w.ledger.owns(c.Namespace, made.UID, false)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.moving.name, c.moving.trip, c.moving.uids = name, t, append(c.moving.uids, made.UID)
	c.hurt = func(fault Fault) bool { return w.hurt(context.WithoutCancel(ctx), c, fault) }
	return nil
}

// counts says whether the application counts in all volumes of a case, in a cluster where
// alone they are, and remembers them.
func (w *World) counts(c *Case, v *View, cluster string) error {
	for _, name := range c.moving.trip.claims {
		if err := w.bound(v, name, cluster); err != nil {
			return err
		}
	}
	return w.countsAmong(c, v, cluster)
}

// countsAmong is counts where there may be other copies of the volumes.
func (w *World) countsAmong(c *Case, v *View, cluster string) error {
	for _, name := range c.moving.trip.claims {
		i := slices.IndexFunc(v.Backings, func(b *corev1.PersistentVolumeClaim) bool {
			claim := v.Claim(name)
			return claim != nil && b.Labels[keys.ClaimUID] == string(claim.UID) && v.clusterOf(b) == cluster
		})
		if i < 0 {
			return fmt.Errorf("claim %s has no backing claim in %s", name, cluster)
		}
		j := slices.IndexFunc(v.Reals, func(real *corev1.PersistentVolume) bool { return real.Spec.ClaimRef.UID == v.Backings[i].UID })
		if j < 0 {
			return fmt.Errorf("claim %s has no real volume in %s", name, cluster)
		}
		at, err := w.diskOf(v.Reals[j])
		if err != nil {
			return err
		}
		log, err := at.log()
		if err != nil {
			return fmt.Errorf("the application has written nothing: %w", err)
		}
		before := 0
		if known := c.moving.volumes[name]; known != nil {
			before, _ = continues(known.log, "")
		}
		if lines, err := continues(log, ""); err != nil || lines < before+3 {
			return errors.Join(errors.New("the application has hardly counted"), err)
		}
		c.moving.track(name, at)
	}
	return nil
}

// counter is the application: in each of its volumes it goes on counting from the last
// number in its log there, and has each line on the disk before it counts on. With the
// number it writes who it is.
func (t trip) counter() string {
	var begin, count, logs strings.Builder
	for i, claim := range t.claims {
		read, write := fmt.Sprintf(`tail -n 1 /%s/log`, claim), fmt.Sprintf(`echo "$n%d $$" >> /%s/log`, i, claim)
		if t.block {
			read = fmt.Sprintf(`head -c %d /%s | tr -d '\0' | tail -n 1`, linesSize, claim)
			write = fmt.Sprintf(`printf '%%-%ds\n' "$n%d $$" | dd of=/%s bs=%d seek=$((n%d-1)) conv=notrunc,fsync status=none`, lineSize-1, i, claim,
				lineSize, i)
		} else {
			fmt.Fprintf(&logs, " /%s/log", claim)
		}
		fmt.Fprintf(&begin, "n%[1]d=$(%[2]s 2>/dev/null || true); n%[1]d=${n%[1]d%%%% *}; n%[1]d=${n%[1]d:-0}\n", i, read)
		fmt.Fprintf(&count, "n%[1]d=$((n%[1]d+1)); %[2]s\n", i, write)
	}
	if !t.block {
		fmt.Fprintf(&count, "sync%s\n", logs.String())
	}
	return begin.String() + "while :; do\n" + count.String() + "sleep 0.4\ndone"
}

func (w *World) deploy(ctx context.Context, c *Case, t trip) error {
	pod := fabric.NewPod(c.Namespace, "", t.claims...)
	pod.Spec.TerminationGracePeriodSeconds = ptr.To(int64(1))
	pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Key: keys.RemoteTaint, Operator: corev1.TolerationOpExists})
	app := corev1.Container{Name: "app", Image: processes.Shell, Command: []string{"sh", "-c", t.counter()}}
	for _, claim := range t.claims {
		if t.block {
			app.VolumeDevices = append(app.VolumeDevices, corev1.VolumeDevice{Name: claim, DevicePath: "/" + claim})
		} else {
			app.VolumeMounts = append(app.VolumeMounts, corev1.VolumeMount{Name: claim, MountPath: "/" + claim})
		}
	}
	pod.Spec.Containers = []corev1.Container{app}
	labels := map[string]string{"app": "counter"}
	_, err := w.Bed.Home.Client().AppsV1().Deployments(c.Namespace).Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "counter"},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod.Spec},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("make a Deployment in %s: %w", c.Namespace, err)
	}
	return nil
}

// undeploy removes the Deployment of a case, if it has one.
func (w *World) undeploy(ctx context.Context, c *Case) error {
	if w.moves == nil {
		return nil
	}
	err := w.Bed.Home.Client().AppsV1().Deployments(c.Namespace).Delete(ctx, "counter", metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete the Deployment in %s: %w", c.Namespace, err)
	}
	return nil
}

// continues says what is wrong with the application's log in a volume: it must begin
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

const (
	// ballast is how many bytes lie in each volume beside what the application writes.
	ballast = 6 << 20
	// A block device begins with the application's lines, of lineSize bytes each; the
	// ballast is behind them.
	deviceSize = 16 << 20
	linesSize  = 1 << 20
	lineSize   = 32
)

// disk is a real volume: a folder, or the file that stands for a block device.
type disk struct {
	path  string
	block bool
}

func (w *World) diskOf(real *corev1.PersistentVolume) (disk, error) {
	path, err := w.Bed.Disks.Of(real)
	if err != nil || ptr.Deref(real.Spec.VolumeMode, corev1.PersistentVolumeFilesystem) != corev1.PersistentVolumeBlock {
		return disk{path: path}, err
	}
	return disk{path: processes.DeviceIn(path), block: true}, nil
}

// log returns what the application has written.
func (d disk) log() (string, error) {
	if !d.block {
		data, err := os.ReadFile(filepath.Join(d.path, "log"))
		return string(data), err
	}
	data, err := d.part(0, linesSize)
	return string(bytes.TrimRight(data, "\x00")), err
}

// part reads a part of a block device.
func (d disk) part(from, length int64) ([]byte, error) {
	file, err := os.Open(d.path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data := make([]byte, length)
	_, err = file.ReadAt(data, from)
	return data, err
}

// fill writes the ballast, and returns its sum.
func (d disk) fill() ([sha256.Size]byte, error) {
	data := make([]byte, ballast)
	if _, err := rand.Read(data); err != nil {
		return [sha256.Size]byte{}, fmt.Errorf("make ballast: %w", err)
	}
	if !d.block {
		return sha256.Sum256(data), os.WriteFile(filepath.Join(d.path, "ballast"), data, 0o600)
	}
	file, err := os.OpenFile(d.path, os.O_WRONLY, 0)
	if err != nil {
		return [sha256.Size]byte{}, fmt.Errorf("write ballast: %w", err)
	}
	_, err = file.WriteAt(data, linesSize)
	return sha256.Sum256(data), errors.Join(err, file.Close())
}

// sum returns that of the ballast.
func (d disk) sum() ([sha256.Size]byte, error) {
	if d.block {
		data, err := d.part(linesSize, ballast)
		return sha256.Sum256(data), err
	}
	data, err := os.ReadFile(filepath.Join(d.path, "ballast"))
	return sha256.Sum256(data), err
}

// laden says whether there is ballast of full size.
func (d disk) laden() bool {
	path := d.path
	if !d.block {
		path = filepath.Join(d.path, "ballast")
	}
	info, err := os.Stat(path)
	return err == nil && info.Size() >= ballast
}
