package replicate

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/remotecluster"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
)

// facts are what is known of a claim and of the cluster that is to have its copy. What the user may not read is nil: the provisioner
// knows.
type facts struct {
	claim     *corev1.PersistentVolumeClaim
	class     *storagev1.StorageClass
	volume    *corev1.PersistentVolume
	namespace *corev1.Namespace
	// replicas are those of the namespace.
	replicas []v1alpha1.VolumeReplica
	// moves are those of the namespace, as far as the user may list them: they say how fast the ways between clusters are.
	moves []v1alpha1.VolumeMove
	// to is the cluster that is to have the copy, remote its RemoteCluster: nil for home.
	to     string
	remote *v1alpha1.RemoteCluster
	// offered are the real classes there; nil: not known.
	offered []v1alpha1.OfferedClass
	// snapshots are the VolumeSnapshotClasses there, as far as known says so.
	snapshots      []volumesnapshot.Class
	snapshotsKnown bool
}

// has is a VolumeReplica that keeps a copy of the claim there already, nil for none.
func (f facts) has() *v1alpha1.VolumeReplica {
	at := slices.IndexFunc(f.replicas, func(r v1alpha1.VolumeReplica) bool {
		return r.DeletionTimestamp == nil && slices.Contains(r.Spec.Claims, f.claim.Name) &&
			slices.ContainsFunc(r.Spec.Standbys, func(s v1alpha1.ReplicaStandby) bool { return s.Cluster == f.to })
	})
	if at < 0 {
		return nil
	}
	return &f.replicas[at]
}

// forbids says why no copy of the claim can be kept there, in one sentence, empty for nothing; and which real class it would have, as
// far as that is known. It is pure.
func (f facts) forbids(className string) (why string, real *v1alpha1.OfferedClass) {
	claim, where := f.claim, "the home cluster"
	if f.to != keys.Home {
		where = fmt.Sprintf("cluster %q", f.to)
	}
	no := func(format string, args ...any) (string, *v1alpha1.OfferedClass) {
		return fmt.Sprintf("claim %s/%s is not replicated: ", claim.Namespace, claim.Name) + fmt.Sprintf(format, args...), nil
	}
	switch has := f.has(); {
	case claim.DeletionTimestamp != nil:
		return no("it is being deleted")
	case claim.Spec.StorageClassName == nil || *claim.Spec.StorageClassName == "":
		return no("it has no storage class, and only volumes of virtual classes have copies; kubectl lodestone import makes existing data " +
			"such a volume")
	case f.class != nil && !virtualclass.Is(f.class):
		return no("its storage class %q is not a virtual one, and only volumes of those have copies; kubectl lodestone import makes existing "+
			"data such a volume", f.class.Name)
	case f.volume != nil && cli.ClusterOf(f.volume) == f.to:
		return no("its data is in %s itself, and a copy beside it would be lost with it; name another cluster with --to", where)
	case has != nil:
		return no("VolumeReplica %q keeps a copy of it in %s already; kubectl lodestone replicate status %s -n %s shows it, and kubectl edit "+
			"volumereplica %s -n %s changes its RPO", has.Name, where, has.Name, has.Namespace, has.Name, has.Namespace)
	case f.remote != nil && f.remote.DeletionTimestamp != nil:
		return no("RemoteCluster %q is being deleted and takes no new volumes; name another cluster with --to", f.to)
	case f.to != keys.Home && f.namespace != nil && !remotecluster.MayUse(f.namespace, f.to):
		if f.namespace.Labels[keys.Offload] != keys.OffloadEnabled {
			return no("namespace %q is not open to remote clusters: kubectl label namespace %s %s=%s", f.namespace.Name, f.namespace.Name,
				keys.Offload, keys.OffloadEnabled)
		}
		return no("namespace %q is not open to %s: its annotation %s lists %q; add the cluster there", f.namespace.Name, where,
			keys.OffloadClusters, f.namespace.Annotations[keys.OffloadClusters])
	}
	if f.class == nil {
		return "", nil
	}
	virtual, err := virtualclass.Parse(f.class)
	switch {
	case err != nil:
		return no("%v", err)
	case !virtual.Allows(f.to):
		return no("storage class %q keeps its volumes out of %s: add it to its parameter %s", f.class.Name, where, keys.Clusters)
	case className != "" && !slices.Contains(virtual.Choices(), className):
		return no("storage class %q does not list real class %q in its parameter %s: name one that it lists with --class%s", f.class.Name,
			className, keys.Classes, listed(virtual.Choices()))
	}
	wanted := claim.Annotations
	if className != "" {
		wanted = map[string]string{keys.Class: className}
	}
	name, err := virtual.RealClassName(f.to, wanted)
	if err != nil {
		return no("%v; or name one with --class", err)
	}
	if name == "" && f.remote != nil {
		name = f.remote.Spec.StorageClassName
	}
	if f.offered == nil {
		return "", nil
	}
	found, err := virtualclass.Resolve(name, where, f.offered)
	if err != nil {
		return no("%v", err)
	}
	return "", &found
}

// inSlots says whether versions in a class are kept in two claims there, as a VolumeReplica asks for or because it has no snapshots; known
// says whether that is known.
func (f facts) inSlots(real *v1alpha1.OfferedClass, spec v1alpha1.VolumeReplicaSpec) (slots, known bool) {
	if spec.Versions.In != "" {
		return spec.Versions.In == v1alpha1.InSlots, true
	}
	return f.snapshotsKnown && real != nil && !slices.ContainsFunc(f.snapshots, func(s volumesnapshot.Class) bool {
		return s.Driver == real.Provisioner && s.DeletionPolicy == volumesnapshot.Delete && s.DeletionTimestamp == nil
	}), f.snapshotsKnown && real != nil
}

func listed(choices []string) string {
	if len(choices) == 0 {
		return ", which lists none"
	}
	return ", such as " + strings.Join(choices, ", ")
}
