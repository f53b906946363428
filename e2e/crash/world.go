package crash

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/store"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/volumemoves"
)

// World is two control planes, with two gates to them, on which cases run.
type World struct {
	Bed    *fabric.Fabric
	ledger *ledger
	binary string
	// dynamic are clients with all rights, for snapshots.
	dynamic map[*testbed.Cluster]dynamic.Interface
	gates   map[int]*gate
	// kubeconfigs are those of the home cluster and of west, by gate.
	kubeconfigs map[int]map[string][]byte
	home, west  *watched
	addresses   []string
	started     int
	say         func(format string, args ...any)
	limits      limits
	// moves is nil in a world without movers, agent empty in one in which the remote agent
	// meets no faults, else the path of its program.
	moves *volumemoves.Client
	// store is nil before content was to travel through it; stored: it does now.
	store  *store.Server
	stored bool
	agent  string
	// users is the kubeconfig of an administrator of both clusters.
	users *clientcmdapi.Config
}

// NewWorld starts the control planes; they end with ctx or with Stop. say is told
// how the work goes on.
func NewWorld(ctx context.Context, say func(format string, args ...any)) (_ *World, err error) {
	w := newWorld(say)
	if w.Bed, err = fabric.Start(ctx, fabric.Options{ControllerManagerQPS: 500}); err != nil {
		return nil, err
	}
	if err := w.prepare(ctx); err != nil {
		w.Stop()
		return nil, err
	}
	return w, nil
}

func newWorld(say func(format string, args ...any)) *World {
	return &World{ledger: newLedger(), gates: map[int]*gate{}, kubeconfigs: map[int]map[string][]byte{}, say: say, limits: ofClaims}
}

// Stop ends the control planes.
func (w *World) Stop() {
	for _, g := range w.gates {
		g.close()
	}
	w.Bed.Stop()
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
	if err := w.open(ctx, remote); err != nil {
		return err
	}
	return w.makeClasses(ctx)
}

// open watches both clusters, and registers west through gate 1 with the kubeconfig
// that home has there.
func (w *World) open(ctx context.Context, remote []byte) (err error) {
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
	if err := w.openGates(map[string][]byte{"home": account, "west": remote}); err != nil {
		return err
	}
	return w.Bed.Register(ctx, "west", w.kubeconfigs[1]["west"])
}

// observe watches both clusters.
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
	w.west, err = watch(ctx, w.Bed.West, false, w.ledger)
	return err
}

// openGates makes both gates, with kubeconfigs that lead through them: of home, of west,
// and of the agent in west.
func (w *World) openGates(kubeconfigs map[string][]byte) error {
	for number := 1; number <= 2; number++ {
		g, err := newGate(number, w.ledger, map[string]*rest.Config{"home": w.Bed.Home.AdminConfig(), "west": w.Bed.West.AdminConfig()})
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
		return w.awaitPlace(ctx, c)
	}
	for ctx.Err() == nil {
		review, err := w.Bed.West.Client().AuthorizationV1().LocalSubjectAccessReviews(c.Namespace).Create(ctx, &authorizationv1.LocalSubjectAccessReview{
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

// patch merges a change into a claim as its user, or whoever is played, may.
func (w *World) patch(ctx context.Context, cluster *testbed.Cluster, claim *corev1.PersistentVolumeClaim, change map[string]any) error {
	data, err := json.Marshal(change)
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	if _, err := cluster.Client().CoreV1().PersistentVolumeClaims(claim.Namespace).Patch(ctx, claim.Name, types.MergePatchType, data, metav1.PatchOptions{}); err != nil {
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

// create makes a claim of a class for a node.
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
