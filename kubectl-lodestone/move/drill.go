package move

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/replica"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// This file has the drill, failover --test: claims of their own are made from versions, so that somebody sees whether an application
// starts with them, and nothing else changes.

// drill is a claim that is to be made from a version.
type drill struct {
	claim   *corev1.PersistentVolumeClaim
	of      string
	cluster string
	cut     time.Time
}

var claimKind = corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim")

// foundIn is how long a version is waited for that should be there.
const foundIn = 30 * time.Second

// test makes claims from versions of others.
func (f *failover) test(ctx context.Context, r *runner, workload cli.Reference, claims []string) error {
	copies, err := f.copiesOf(ctx, r, claims)
	if err != nil {
		return err
	}
	var drills []drill
	for _, copied := range copies {
		if copied.Status.Standbys[0].In == v1alpha1.InSlots {
			return cli.Refuse("the second copy of %s in cluster %s is in two claims that are written in turn, without snapshots, and no "+
				"other claim can be made of one: --test needs a copy in a class that has snapshots", replica.Of(copied, time.Time{}).Quoted(),
				copied.Status.Standbys[0].Cluster)
		}
		if all := copied.Spec.Claims; f.name != "" && len(all) > 1 {
			return cli.Misuse("--name is for one claim, and claims %s are tested together, each with a name of its own: leave --name out",
				strings.Join(all, ", "))
		}
		for _, name := range copied.Spec.Claims {
			claim, err := r.home.Claim(ctx, r.namespace, name)
			if err != nil {
				return err
			}
			as := f.name
			if as == "" {
				as = drillName(name, workload)
			}
			drills = append(drills, drillOf(claim, copied, f.version, as))
		}
	}
	made := make([]corev1.PersistentVolumeClaim, 0, len(drills))
	for _, d := range drills {
		claim, err := r.makeDrill(ctx, d)
		if err != nil {
			return errors.Join(err, r.undone(made))
		}
		made = append(made, *claim)
	}
	switch {
	case r.Output.Format != "" && len(made) == 1 && workload.Name == "":
		return r.Output.WriteOne(r.streams.Out, claimKind, &made[0])
	case r.Output.Format != "":
		return cli.WriteAll(r.Output, r.streams.Out, claimKind, made)
	case r.DryRun:
		return nil
	}
	_, err = fmt.Fprintln(r.streams.Out, howToUse(drills, workload))
	return err
}

// drillName is the name of the claim that is made from a version of a claim. Those of a StatefulSet get the names that the claims of
// another have that is called like it with -drill.
func drillName(claim string, workload cli.Reference) string {
	if workload.Kind == cli.StatefulSet {
		if i := strings.LastIndex(claim, "-"+workload.Name+"-"); i > 0 {
			of := i + len("-"+workload.Name)
			return claim[:of] + "-drill" + claim[of:]
		}
	}
	return claim + "-drill"
}

// drillOf returns the claim that is made from a version of a claim: the newest unless one is named. It is pure.
func drillOf(claim *corev1.PersistentVolumeClaim, copied *v1alpha1.VolumeReplica, version, name string) drill {
	versions := copied.Status.Standbys[0].Versions
	i := max(0, slices.IndexFunc(versions, func(v v1alpha1.ReplicaVersion) bool { return v.Name == version }))
	size := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	if has := claim.Status.Capacity[corev1.ResourceStorage]; has.Cmp(size) > 0 {
		size = has
	}
	wanted := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: claim.Namespace, Name: name,
			// No copy is kept of what a test writes, whatever the class says.
			Annotations: map[string]string{keys.ReplicaVersion: versions[i].Name, keys.ReplicateTo: ""}},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: claim.Spec.AccessModes, VolumeMode: claim.Spec.VolumeMode, StorageClassName: claim.Spec.StorageClassName,
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: size}},
			DataSourceRef: &corev1.TypedObjectReference{APIGroup: ptr.To(v1alpha1.GroupVersion.Group), Kind: "VolumeReplica",
				Name: copied.Name},
		},
	}
	if len(copied.Spec.Claims) > 1 {
		wanted.Annotations[keys.ReplicaClaim] = claim.Name
	}
	// The copy is of a class of the same driver.
	if class := copied.Spec.Standbys[0].ClassName; class != "" {
		wanted.Annotations[keys.Class] = class
	} else if class, ok := claim.Annotations[keys.Class]; ok {
		wanted.Annotations[keys.Class] = class
	}
	return drill{claim: wanted, of: claim.Name, cluster: copied.Spec.Standbys[0].Cluster, cut: versions[i].Cut.Time}
}

// makeDrill makes a claim, says what it has, and waits until a pod can use it.
func (r *runner) makeDrill(ctx context.Context, d drill) (*corev1.PersistentVolumeClaim, error) {
	options, does := metav1.CreateOptions{}, "created"
	if r.DryRun {
		options.DryRun, does = []string{metav1.DryRunAll}, "would be created"
	}
	claim, err := r.home.Client.CoreV1().PersistentVolumeClaims(r.namespace).Create(ctx, d.claim, options)
	switch {
	case apierrors.IsAlreadyExists(err):
		return nil, cli.Refuse("there is a claim %q in namespace %s already: kubectl delete pvc %s -n %s removes it if it is of an earlier "+
			"test, else give the new one another name with --name", d.claim.Name, r.namespace, d.claim.Name, r.namespace)
	case err != nil:
		return nil, r.home.Explain("create claim "+d.claim.Name, err)
	}
	if r.Output.Format == "" {
		if _, err := fmt.Fprintf(r.streams.Out, "persistentvolumeclaim/%s %s: it has what claim %s had at %s (%s old), in cluster %s\n",
			claim.Name, does, d.of, d.cut.UTC().Format(time.RFC3339), duration.HumanDuration(max(time.Since(d.cut), 0)), d.cluster); err != nil {
			return nil, err
		}
	}
	if r.DryRun || r.Detach {
		return claim, nil
	}
	return r.awaitDrill(ctx, claim)
}

// awaitDrill waits until the provisioner has found the version of a claim, so that a pod can use it.
func (r *runner) awaitDrill(ctx context.Context, claim *corev1.PersistentVolumeClaim) (*corev1.PersistentVolumeClaim, error) {
	began := time.Now()
	err := cli.Reporter{Out: r.streams.ErrOut}.Await(ctx, "the version of claim "+claim.Name, func(ctx context.Context) (string, bool, error) {
		seen, err := r.home.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).Get(ctx, claim.Name, metav1.GetOptions{})
		switch {
		case err != nil && cli.IsTransient(err):
			return err.Error(), false, nil
		case err != nil:
			return "", false, r.home.Explain("get claim "+claim.Name, err)
		case seen.Annotations[keys.SourceCluster] != "":
			claim = seen
			return "", true, nil
		}
		said := r.lastEvent(ctx, claim)
		if time.Since(began) < foundIn {
			return said, false, nil
		}
		if said == "" {
			said = "the provisioner has not looked at it: see whether it runs (kubectl get pods -n lodestone-system)"
		}
		return "", false, cli.Refuse("claim %s was made, but no pod can use it yet: %s; it goes on by itself once it can, and kubectl delete "+
			"pvc %s -n %s removes it", claim.Name, said, claim.Name, claim.Namespace)
	})
	return claim, err
}

// lastEvent is what the last event of a claim says; empty if there is none, or it may not be read.
func (r *runner) lastEvent(ctx context.Context, claim *corev1.PersistentVolumeClaim) (said string) {
	list, err := r.home.Client.CoreV1().Events(claim.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("involvedObject.uid", string(claim.UID)).String()})
	if err != nil {
		return ""
	}
	var at time.Time
	for i := range list.Items {
		// Kubernetes itself says of each such claim that it waits for its first pod.
		e := &list.Items[i]
		if strings.HasPrefix(e.Source.Component, "lodestone-") && !e.LastTimestamp.Time.Before(at) {
			said, at = e.Message, e.LastTimestamp.Time
		}
	}
	return said
}

// undone says how claims are removed that were made before another could not be.
func (r *runner) undone(made []corev1.PersistentVolumeClaim) error {
	if len(made) == 0 || r.DryRun {
		return nil
	}
	var names []string
	for i := range made {
		names = append(names, made[i].Name)
	}
	return fmt.Errorf("kubectl delete pvc %s -n %s removes what was made before that", strings.Join(names, " "), r.namespace)
}

// howToUse says how pods get the claims, and how the claims are removed.
func howToUse(drills []drill, workload cli.Reference) string {
	var made, of []string
	for _, d := range drills {
		made, of = append(made, d.claim.Name), append(of, d.of)
	}
	use := fmt.Sprintf("a pod like that of the application, with %s in place of %s,", strings.Join(made, " and "), strings.Join(of, " and "))
	if workload.Kind == cli.StatefulSet && made[0] != of[0]+"-drill" {
		use = fmt.Sprintf("a StatefulSet like %s, with the name %s-drill, uses them, and each of its pods", workload.Name, workload.Name)
	}
	return fmt.Sprintf("%s is scheduled to cluster %s; kubectl delete pvc %s -n %s removes what was made, and no version", use,
		strings.Join(slices.Compact(clustersOf(drills)), " or "), strings.Join(made, " "), drills[0].claim.Namespace)
}

func clustersOf(drills []drill) (clusters []string) {
	for _, d := range drills {
		clusters = append(clusters, d.cluster)
	}
	slices.Sort(clusters)
	return clusters
}
