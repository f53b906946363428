package crash

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/fakeprovisioner"
	"github.com/lodestone-storage/lodestone/e2e/processes"
	"github.com/lodestone-storage/lodestone/e2e/store"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// managerQPS is the request rate of the controller managers.
const managerQPS = 500

// World is two control planes, or three, with two gates to them, on which cases run.
type World struct {
	Bed    *fabric.Fabric
	ledger *ledger
	binary string
	// dynamic are clients with all rights, for snapshots.
	dynamic map[*testbed.Cluster]dynamic.Interface
	gates   map[int]*gate
	// kubeconfigs are those of the home cluster and of west, by gate.
	kubeconfigs map[int]map[string][]byte
	home        *watched
	remotes     []*remote
	addresses   []string
	started     int
	say         func(format string, args ...any)
	limits      limits
	// moves is nil in a world without movers, agent empty in one in which the remote agent
	// meets no faults, else the path of its program.
	moves *clients.VolumeMoveClient
	// store is nil before content was to travel through it; stored: it does now.
	store  *store.Server
	stored bool
	agent  string
	// users is the kubeconfig of an administrator of both clusters.
	users *clientcmdapi.Config
}

// NewWorld starts the control planes; they end with ctx or with Stop. say is told
// how the work goes on.
func NewWorld(ctx context.Context, say func(format string, args ...any)) (*World, error) {
	w, err := newWorld(ctx, say, fabric.Options{})
	if err != nil {
		return nil, err
	}
	if err := w.prepare(ctx); err != nil {
		w.Stop()
		return nil, err
	}
	return w, nil
}

// newWorld starts a bed, which has west.
func newWorld(ctx context.Context, say func(format string, args ...any), o fabric.Options) (*World, error) {
	o.ControllerManagerQPS = managerQPS
	bed, err := fabric.Start(ctx, o)
	if err != nil {
		return nil, err
	}
	return &World{
		Bed: bed, remotes: []*remote{{name: "west", bed: bed}},
		ledger: newLedger(), gates: map[int]*gate{}, kubeconfigs: map[int]map[string][]byte{}, say: say, limits: ofClaims,
	}, nil
}

// Stop ends the control planes.
func (w *World) Stop() {
	for _, g := range w.gates {
		g.close()
	}
	for _, remote := range w.remotes {
		remote.bed.Stop()
	}
	if w.store != nil {
		w.store.Stop()
	}
}

func (w *World) prepare(ctx context.Context) (err error) {
	if err := w.defineSnapshots(ctx); err != nil {
		return err
	}
	if err := w.makeAttributes(ctx); err != nil {
		return err
	}
	remote, err := w.Bed.WestKubeconfig(ctx)
	if err != nil {
		return err
	}
	if err := w.open(ctx, map[string][]byte{"west": remote}); err != nil {
		return err
	}
	return w.makeClasses(ctx)
}

// open watches all clusters, and registers the remote ones through gate 1, with the
// kubeconfigs that home has there.
func (w *World) open(ctx context.Context, remotes map[string][]byte) (err error) {
	if w.binary, err = w.Bed.BuildProvisioner(ctx); err != nil {
		return err
	}
	if err := w.observe(ctx); err != nil {
		return err
	}
	account, err := w.Bed.ProvisionerKubeconfig(ctx)
	if err != nil {
		return err
	}
	kubeconfigs := maps.Clone(remotes)
	kubeconfigs["home"] = account
	if err := w.openGates(kubeconfigs); err != nil {
		return err
	}
	for _, remote := range w.remotes {
		if err := w.Bed.Register(ctx, remote.name, w.kubeconfigs[1][remote.name]); err != nil {
			return err
		}
	}
	return nil
}

// observe watches all clusters.
func (w *World) observe(ctx context.Context) (err error) {
	if w.home, err = watch(ctx, w.Bed.Home, true, w.ledger); err != nil {
		return err
	}
	path, err := w.Bed.Contexts()
	if err != nil {
		return err
	}
	if w.users, err = clientcmd.LoadFromFile(path); err != nil {
		return fmt.Errorf("read the kubeconfig of both clusters: %w", err)
	}
	for _, remote := range w.remotes {
		if remote.watched, err = watch(ctx, remote.bed.West, false, w.ledger); err != nil {
			return err
		}
	}
	return nil
}

// openGates makes both gates, with kubeconfigs that lead through them: of home, of the
// remote clusters, and of the agent in west.
func (w *World) openGates(kubeconfigs map[string][]byte) error {
	clusters := map[string]*rest.Config{"home": w.Bed.Home.AdminConfig()}
	for _, remote := range w.remotes {
		clusters[remote.name] = remote.bed.West.AdminConfig()
	}
	for number := 1; number <= 2; number++ {
		g, err := newGate(number, w.ledger, clusters)
		if err != nil {
			return err
		}
		w.gates[number] = g
		w.kubeconfigs[number] = map[string][]byte{}
		for of, kubeconfig := range kubeconfigs {
			cluster := of
			if of == "agent" {
				cluster = "west"
			}
			if w.kubeconfigs[number][of], err = g.through(cluster, kubeconfig); err != nil {
				return err
			}
		}
		address, err := w.Bed.Home.ReserveAddress()
		if err != nil {
			return err
		}
		w.addresses = append(w.addresses, address)
	}
	return nil
}

// gives says whether west gives namespaces on request.
func (w *World) gives() bool { return w.moves != nil || w.agent != "" }

// newNamespaces makes the namespaces of a case, which home may use in west.
func (w *World) newNamespaces(ctx context.Context, c *Case) error {
	if w.gives() {
		// The remote agent makes that of west.
		return w.newHomeNamespace(ctx, c)
	}
	for cluster, labels := range map[*testbed.Cluster]map[string]string{w.Bed.Home: {keys.Offload: keys.OffloadEnabled}, w.Bed.West: nil} {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.Namespace, Labels: labels}}
		if _, err := cluster.Client().CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("make namespace %s of %s: %w", c.Namespace, cluster.Name(), err)
		}
	}
	return w.Bed.BindRole(ctx, c.Namespace)
}

// awaitRights waits until the API server of west knows home's rights in a case's
// namespace: a claim that comes before is sent elsewhere.
func (w *World) awaitRights(ctx context.Context, c *Case) error {
	if w.gives() {
		return w.awaitPlaces(ctx, c)
	}
	for ctx.Err() == nil {
		review, err := w.Bed.West.Client().AuthorizationV1().LocalSubjectAccessReviews(c.Namespace).Create(ctx,
			&authorizationv1.LocalSubjectAccessReview{
				ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace},
				Spec: authorizationv1.SubjectAccessReviewSpec{
					User:               fabric.WestUser,
					ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: c.Namespace, Verb: "create", Resource: "persistentvolumeclaims"},
				},
			}, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("ask for home's rights in %s: %w", c.Namespace, err)
		}
		if review.Status.Allowed {
			return nil
		}
		time.Sleep(often)
	}
	return ctx.Err()
}

func newName() string { return prefix + rand.String(8) }

// east is the name of the second remote cluster, which only some worlds have.
const east = "east"

// remote is a remote cluster: west of a bed, whose home is not used if it is not the
// world's own.
type remote struct {
	*watched
	name string
	bed  *fabric.Fabric
}

// remote returns the remote cluster of a name, which the world must have.
func (w *World) remote(name string) *remote {
	return w.remotes[slices.IndexFunc(w.remotes, func(r *remote) bool { return r.name == name })]
}

// joinEast starts the second remote cluster.
func (w *World) joinEast(ctx context.Context, programs map[string]string) error {
	bed, err := fabric.Start(ctx, fabric.Options{ControllerManagerQPS: managerQPS, Agent: true, Programs: programs, Disks: w.Bed.Disks})
	if err != nil {
		return err
	}
	w.remotes = append(w.remotes, &remote{name: east, bed: bed})
	_, err = bed.StartAgent(ctx)
	return err
}

// serveHome has the agents of all remote clusters serve home, and returns the kubeconfigs
// that home has there.
func (w *World) serveHome(ctx context.Context) (map[string][]byte, error) {
	system, err := w.Bed.Home.Client().CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("get namespace %s of home: %w", metav1.NamespaceSystem, err)
	}
	kubeconfigs := map[string][]byte{}
	for _, remote := range w.remotes {
		kubeconfigs[remote.name], err = remote.bed.Tenant(ctx, func(home *remotev1alpha1.HomeCluster) {
			home.Spec.ClusterUID = string(system.UID)
			home.Name = home.Spec.ClusterUID[:8]
			// Each case leaves a namespace there.
			home.Spec.Namespaces.Maximum = ptr.To[int32](5000)
		})
		if err != nil {
			return nil, err
		}
	}
	return kubeconfigs, nil
}

// Subject is a program whose calls count in a flow and meet its faults. It is the
// beginning of the name that the program has in its requests.
type Subject string

// The programs. The plugin runs inside this process: it keeps nothing but what it has
// written, so that one whose requests are all refused from a call on is like one that
// was killed there.
const (
	Provisioner Subject = "lodestone-provisioner"
	Agent       Subject = "lodestone-remote-agent"
	Plugin      Subject = "kubectl-lodestone"
)

func (f *Flow) subject() Subject {
	if f.Of == "" {
		return Provisioner
	}
	return f.Of
}

// start starts a replica of the program that meets the faults behind a gate: the
// provisioner, or the remote agent in a world of flows of that. Its lease, if it elects
// a leader, is short.
func (w *World) start(ctx context.Context, gate int, elect bool) (*testbed.Program, error) {
	w.started++
	cluster, of, binary := w.Bed.Home, "home", w.binary
	flags := []string{"--probe-interval=1s", "--refusal-period=15s", "--forced-deletion-margin=1s", "--move-settling=2s", "--mover-networks=" +
		processes.Network, "--workers=64"}
	if w.agent != "" {
		cluster, of, binary, flags = w.Bed.West, "agent", w.agent, []string{"--settle-time=1s"}
	}
	name := fmt.Sprintf("%s-%d", strings.TrimPrefix(binary[strings.LastIndex(binary, "/")+1:], "lodestone-"), w.started)
	kubeconfig, err := cluster.WriteFile(fmt.Sprintf("gate-%d.kubeconfig", gate), w.kubeconfigs[gate][of])
	if err != nil {
		return nil, err
	}
	address := w.addresses[gate-1]
	flags = append(flags, "--kubeconfig="+kubeconfig, "--http-address="+address, fmt.Sprintf("--leader-elect=%v", elect),
		"--lease-duration=8s", "--v=3")
	program, err := cluster.StartProgram(name, binary, flags...)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, fmt.Errorf("not ready after %v", readyTimeout))
	defer cancel()
	if err := program.AwaitHTTP(ctx, "http://"+address+"/readyz"); err != nil {
		program.Kill()
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return program, nil
}

// readyTimeout bounds the start of a program, leadTimeout how long a replica may
// wait for a lease that is not renewed.
const (
	readyTimeout = 30 * time.Second
	leadTimeout  = 30 * time.Second
)

// errDeposed is the error of a program that lost its lease and therefore ended, as it
// must: on a machine that is too busy to renew it in time. That says nothing of a case.
var errDeposed = errors.New("it lost its lease")

// endOf is the error of a program that ended by itself.
func endOf(program *testbed.Program) error {
	output, err := program.Output()
	if err == nil && strings.Contains(output, "leadership was lost") {
		return fmt.Errorf("%s ended by itself: %w", program.Name(), errDeposed)
	}
	return errors.Join(fmt.Errorf("%s ended by itself", program.Name()), err)
}

// lead makes west be reached through a gate.
func (w *World) lead(ctx context.Context, gate int) error {
	patch, err := json.Marshal(map[string]any{"data": map[string][]byte{"kubeconfig": w.kubeconfigs[gate]["west"]}})
	if err != nil {
		return fmt.Errorf("encode kubeconfig: %w", err)
	}
	if _, err := w.Bed.Home.Client().CoreV1().Secrets(fabric.System).Patch(ctx, "west", types.MergePatchType, patch,
		metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("lead to west through gate %d: %w", gate, err)
	}
	return nil
}

// awaitLeader waits until a program leads.
func awaitLeader(ctx context.Context, program *testbed.Program) error {
	for deadline := time.Now().Add(leadTimeout); ; time.Sleep(often) {
		leads, err := fabric.Leads(program)
		switch {
		case err != nil:
			return err
		case leads:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case time.Now().After(deadline):
			return fmt.Errorf("%s does not lead after %v", program.Name(), leadTimeout)
		}
	}
}

// The virtual classes of the cases.
const (
	// In west, the real class of now binds at once, that of wait when a pod there
	// uses the claim.
	now  = "crash-now"
	wait = "crash-wait"
	// retain keeps its volumes.
	retain = "crash-retain"
	// stuck has real classes that never make a volume, moved has one in west.
	stuck = "crash-stuck"
	moved = "crash-moved"
	// full has a real class at home without room on fullNode.
	full     = "crash-full"
	fullNode = "home-2"
	// choice lets claims ask for any real class of west.
	choice = "crash-choice"
	// either has a real class at home, and one in west that binds at once.
	either = "crash-either"
)

// Real classes that the test bed does not have.
const (
	homeStuck = "home-stuck"
	westStuck = "west-stuck"
	homeFull  = "home-full"
)

func (w *World) makeClasses(ctx context.Context) error {
	home, west := w.Bed.HomeStorage, w.Bed.WestStorage
	home.SetClass(homeStuck, fakeprovisioner.Behavior{Never: true})
	west.SetClass(westStuck, fakeprovisioner.Behavior{Never: true})
	home.SetClass(homeFull, fakeprovisioner.Behavior{FullNodes: []string{fullNode}})
	for _, class := range []*storagev1.StorageClass{home.Class(homeStuck, storagev1.VolumeBindingImmediate),
		home.Class(homeFull, storagev1.VolumeBindingWaitForFirstConsumer)} {
		if _, err := w.Bed.Home.Client().StorageV1().StorageClasses().Create(ctx, class, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("make class %s at home: %w", class.Name, err)
		}
	}
	if _, err := w.Bed.West.Client().StorageV1().StorageClasses().Create(ctx, west.Class(westStuck, storagev1.VolumeBindingImmediate),
		metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make class %s in west: %w", westStuck, err)
	}
	for name, real := range map[string][2]string{
		now: {fabric.HomeWait, fabric.WestNow}, wait: {fabric.HomeWait, fabric.WestWait}, retain: {fabric.HomeWait, fabric.WestNow},
		stuck: {homeStuck, westStuck}, moved: {fabric.HomeWait, westStuck}, full: {homeFull, fabric.WestNow},
	} {
		class := newClass(name, map[string]string{keys.LocalClass: real[0], keys.RemoteClass: real[1], keys.Carry: "team,note"})
		if name == retain {
			class.ReclaimPolicy = ptr.To(corev1.PersistentVolumeReclaimRetain)
		}
		if _, err := w.Bed.Home.Client().StorageV1().StorageClasses().Create(ctx, class, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("make class %s: %w", name, err)
		}
	}
	return nil
}

func newClass(name string, parameters map[string]string) *storagev1.StorageClass {
	return &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: keys.Driver,
		VolumeBindingMode:    ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
		ReclaimPolicy:        ptr.To(corev1.PersistentVolumeReclaimDelete),
		AllowVolumeExpansion: ptr.To(true),
		Parameters:           parameters,
	}
}

func (w *World) makeClass(ctx context.Context, name string, parameters map[string]string) error {
	if _, err := w.Bed.Home.Client().StorageV1().StorageClasses().Create(ctx, newClass(name, parameters), metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make class %s: %w", name, err)
	}
	return nil
}

// NewAgentWorld starts control planes for the flows of the remote agent, and for no
// others: the agent is behind the gates, and the provisioner is not.
func NewAgentWorld(ctx context.Context, say func(format string, args ...any)) (*World, error) {
	w, err := newWorld(ctx, say, fabric.Options{Agent: true})
	if err != nil {
		return nil, err
	}
	if err := w.prepareAgent(ctx); err != nil {
		w.Stop()
		return nil, err
	}
	return w, nil
}

func (w *World) prepareAgent(ctx context.Context) (err error) {
	if w.agent, err = w.Bed.BuildAgent(ctx); err != nil {
		return err
	}
	if err := w.observe(ctx); err != nil {
		return err
	}
	account, err := w.Bed.AgentKubeconfig(ctx)
	if err != nil {
		return err
	}
	if err := w.openGates(map[string][]byte{"agent": account}); err != nil {
		return err
	}
	// Home is served once; each batch starts an agent of its own.
	first, err := w.start(ctx, 1, false)
	if err != nil {
		return err
	}
	defer first.Kill()
	kubeconfigs, err := w.serveHome(ctx)
	if err != nil {
		return err
	}
	if _, err := w.Bed.StartProvisioner(ctx); err != nil {
		return err
	}
	if err := w.Bed.Register(ctx, "west", kubeconfigs["west"]); err != nil {
		return err
	}
	return w.makeClasses(ctx)
}

// patch merges a change into a claim as its user, or whoever is played, may.
func (w *World) patch(ctx context.Context, cluster *testbed.Cluster, claim *corev1.PersistentVolumeClaim, change map[string]any) error {
	data, err := json.Marshal(change)
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	if _, err := cluster.Client().CoreV1().PersistentVolumeClaims(claim.Namespace).Patch(ctx, claim.Name, types.MergePatchType, data,
		metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("patch claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	return nil
}

// choose writes a node on a claim, as a scheduler does; with "" it takes it off.
func (w *World) choose(ctx context.Context, cluster *testbed.Cluster, claim *corev1.PersistentVolumeClaim, node string) error {
	var chosen any
	if node != "" {
		chosen = node
	}
	return w.patch(ctx, cluster, claim, map[string]any{"metadata": map[string]any{"annotations": map[string]any{keys.SelectedNode: chosen}}})
}

func (w *World) create(ctx context.Context, c *Case, name, class, node string, changes ...func(*corev1.PersistentVolumeClaim)) error {
	claim := fabric.NewClaim(c.Namespace, name, class)
	claim.Annotations = map[string]string{keys.SelectedNode: node}
	for _, change := range changes {
		change(claim)
	}
	made, err := w.Bed.Home.Client().CoreV1().PersistentVolumeClaims(c.Namespace).Create(ctx, claim, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("make claim %s/%s: %w", c.Namespace, name, err)
	}
	learn(made, true, w.ledger)
	return nil
}

func (w *World) delete(ctx context.Context, cluster *testbed.Cluster, namespace, name string) error {
	if err := cluster.Client().CoreV1().PersistentVolumeClaims(namespace).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("delete claim %s/%s: %w", namespace, name, err)
	}
	return nil
}
