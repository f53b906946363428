package adopt

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
)

// Facts is what there is of a home cluster in this one.
type Facts struct {
	HomeID string
	// Namespaces are those that were made for it.
	Namespaces []Namespace
	Claims     []corev1.PersistentVolumeClaim
	Snapshots  []volumesnapshot.Snapshot
	// Classes are the names of the storage classes.
	Classes []string
	// Before leaves out versions of a later moment; zero: none.
	Before time.Time
}

// Namespace is one that was made for a home cluster, for the namespace Of there, as it was when it was read.
type Namespace struct {
	Name, Of, ResourceVersion string
	UID                       types.UID
}

// Successor returns the home cluster that gets the namespaces of one that is lost, by the word of this cluster's owner; nil: they become
// this cluster's own. It is pure.
func Successor(lost string, homes []remotev1alpha1.HomeCluster) (heir *remotev1alpha1.HomeCluster, err error) {
	for i := range homes {
		switch next := &homes[i]; {
		case next.Spec.Succeeds != lost || next.Name == lost:
		case next.DeletionTimestamp != nil:
			return nil, cli.Refuse("HomeCluster %s, whose spec.succeeds names %s, is being deleted: wait until it is gone, or take that off it",
				next.Name, lost)
		case len(next.Spec.Namespaces.Names) == 0:
			return nil, cli.Refuse("HomeCluster %s, whose spec.succeeds names %s, lists no names of namespaces, so that home cluster would ask for "+
				"none that %s had here: unpeer it, and peer it with --namespaces and --namespace-strategy SameName", next.Name, lost, lost)
		case heir != nil:
			return nil, cli.Refuse("HomeClusters %s and %s both have %s in spec.succeeds, and only one can get what that had here: take it off "+
				"the other", heir.Name, next.Name, lost)
		default:
			heir = next
		}
	}
	return heir, nil
}

// passes says whether a namespace can be the one that a successor asks for: one with the ID of the lost home cluster in its name cannot.
func (n Namespace) passes() bool { return n.Name == n.Of }

// Verb is what becomes of a claim.
type Verb string

// The verbs.
const (
	// Keep: its data is here, and it becomes an ordinary claim.
	Keep Verb = "keep"
	// Make: it is made of a version.
	Make Verb = "make"
	// Leave: nothing is done, for the reason that Line.Why has.
	Leave Verb = "leave"
)

// Line is what becomes of one claim of the home cluster. Claim is its name in this cluster.
type Line struct {
	Namespace, Claim string
	Verb             Verb
	Why              string
	// Again says that the user can mend that, and run the command again.
	Again bool
	// Alone is a newer version that has this claim alone, where it is made of one of the moment of others.
	Alone *Line
	// Kept is the claim that is kept.
	Kept *corev1.PersistentVolumeClaim
	// Version is the name of the version that it is made of, which says Seal of itself and has RestoreSize.
	Version     string
	Seal        *volumesnapshot.Seal
	RestoreSize *resource.Quantity
}

// Plan decides what becomes of each claim of a home cluster that is lost, by namespace and name. It is pure.
func Plan(f Facts) []Line {
	lines, has := kept(f)
	lines = append(lines, made(f, has)...)
	slices.SortStableFunc(lines, func(a, b Line) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Claim, b.Claim))
	})
	return lines
}

// kept are the claims whose data is here; has are the names that are taken, as namespace/name.
func kept(f Facts) (lines []Line, has map[string]*corev1.PersistentVolumeClaim) {
	has = map[string]*corev1.PersistentVolumeClaim{}
	for i := range f.Claims {
		claim := &f.Claims[i]
		has[claim.Namespace+"/"+claim.Name] = claim
		if claim.Labels[keys.HomeID] == f.HomeID && claim.Labels[keys.ReplicaOf] != "" && claim.Annotations[keys.Seal] != "" {
			lines = append(lines, inSlot(claim))
			continue
		}
		if claim.Labels[keys.HomeID] != f.HomeID || claim.Labels[keys.ReplicaOf] != "" {
			continue
		}
		line := Line{Namespace: claim.Namespace, Claim: claim.Name, Verb: Leave}
		switch {
		case isKept(f, claim):
			line.Verb, line.Kept = Keep, claim
		case claim.DeletionTimestamp != nil:
			line.Why = "it is being deleted"
		case claim.Labels[keys.MoveOf] != "":
			line.Why = "it is the copy of a move that was not over, and need not be whole; to keep or delete it take the finalizer " +
				keys.BackingFinalizer + " off"
		case claim.Labels[keys.ClaimUID] == "":
			line.Why = "it is not the volume of a claim at home"
		default:
			line.Why = "no pod has ever used it; to delete it take the finalizer " + keys.BackingFinalizer + " off"
		}
		lines = append(lines, line)
	}
	return lines, has
}

// inSlot says how a version is used that is in a real claim, without snapshots. A claim cannot be renamed, so nothing is done.
func inSlot(claim *corev1.PersistentVolumeClaim) Line {
	line := Line{Namespace: claim.Namespace, Claim: claim.Name, Verb: Leave}
	seal, err := volumesnapshot.DecodeSeal(claim.Annotations[keys.Seal])
	if err != nil {
		line.Why = fmt.Sprintf("it has a version of a second copy, and does not say of what: %v", err)
		return line
	}
	line.Why = fmt.Sprintf("it has version %d of claim %s, with what was written in %s until %s: to keep it take its label %s off, and have "+
		"pods use it under its own name", seal.Number, seal.Name, place(seal.Primary), seal.Cut.UTC().Format(time.RFC3339), keys.ReplicaOf)
	return line
}

// version is what there is of a version: a line for each claim that it has.
type version []Line

// whole says whether it has all claims that are of its moment.
func (v version) whole() bool { return len(v) == max(1, len(v[0].Seal.Group)) }

// made are the claims that are made of the newest version that may be used. Those that are of one moment are made of the same version,
// all or none.
func made(f Facts, has map[string]*corev1.PersistentVolumeClaim) (lines []Line) {
	versions, lines := versionsOf(f)
	begun := func(v version) int {
		if slices.ContainsFunc(v, func(l Line) bool { return l.isMade(has) }) {
			return 0
		}
		return 1
	}
	slices.SortFunc(versions, func(a, b version) int {
		return cmp.Or(begun(a)-begun(b), len(b[0].Seal.Group)-len(a[0].Seal.Group), b[0].Seal.Cut.Compare(a[0].Seal.Cut),
			cmp.Compare(a[0].Version, b[0].Version))
	})
	planned := map[string]bool{}
	for _, v := range versions {
		if v.whole() && !slices.ContainsFunc(v, func(l Line) bool { return planned[l.key()] }) {
			for _, line := range v {
				planned[line.key()] = true
			}
			lines = append(lines, madeOf(f, has, v)...)
		}
	}
	for _, v := range versions {
		for i := range lines {
			if line := &lines[i]; line.Verb == Make && len(line.Seal.Group) > 1 && len(v) == 1 && len(v[0].Seal.Group) < 2 &&
				v[0].key() == line.key() && v[0].Seal.Cut.After(line.Seal.Cut) && (line.Alone == nil || v[0].Seal.Cut.After(line.Alone.Seal.Cut)) {
				line.Alone = &v[0]
			}
		}
	}
	for _, v := range versions {
		for _, line := range v {
			if planned[line.key()] || has[line.key()] != nil {
				continue
			}
			planned[line.key()] = true
			line.Verb, line.Why = Leave, fmt.Sprintf("no version of claims %s, which are of one moment, is whole here: look at its VolumeSnapshots",
				strings.Join(line.Seal.Group, ", "))
			lines = append(lines, line)
		}
	}
	return lines
}

// versionsOf are the versions that may be used; lines say of which snapshots nothing is known.
func versionsOf(f Facts) (versions []version, lines []Line) {
	byKey := map[string]version{}
	for i := range f.Snapshots {
		s := &f.Snapshots[i]
		if s.Labels[keys.HomeID] != f.HomeID || s.Labels[keys.ReplicaOf] == "" || s.DeletionTimestamp != nil {
			continue
		}
		seal, err := volumesnapshot.DecodeSeal(s.Annotations[keys.Seal])
		switch {
		case err != nil:
			lines = append(lines, Line{Namespace: s.Namespace, Claim: s.Name, Verb: Leave, Why: fmt.Sprintf("the VolumeSnapshot of that name is "+
				"a version, and does not say of what: %v", err)})
			continue
		case !ptr.Deref(s.Status.ReadyToUse, false), !f.Before.IsZero() && seal.Cut.After(f.Before):
			continue
		}
		of := strings.Join(seal.Group, ",")
		if of == "" {
			of = seal.Name
		}
		key := fmt.Sprintf("%s/%s/%s/%d/%s", s.Namespace, s.Labels[keys.ReplicaOf], of, seal.Number, seal.Cut.UTC())
		if slices.ContainsFunc(byKey[key], func(l Line) bool { return l.Claim == seal.Name }) {
			continue
		}
		byKey[key] = append(byKey[key], Line{Namespace: s.Namespace, Claim: seal.Name, Verb: Make, Version: s.Name, Seal: seal,
			RestoreSize: s.Status.RestoreSize})
	}
	return slices.Collect(maps.Values(byKey)), lines
}

// madeOf are the claims that are made of a version. If one cannot be, those that are of its moment are not made either.
func madeOf(f Facts, has map[string]*corev1.PersistentVolumeClaim, v version) (lines []Line) {
	why := ""
	for i := range v {
		line := &v[i]
		switch claim, data := has[line.key()], dataOf(f, line); {
		case line.isMade(has):
			line.Verb, line.Why = Leave, "it was made of VolumeSnapshot "+line.Version+" before"
			continue
		case data != nil && data.Labels[keys.HomeID] == f.HomeID:
			// The line of that claim says so.
			line.Verb, line.Why = Leave, ""
		case data != nil:
			line.Verb, line.Why = Leave, fmt.Sprintf("its data is here, in claim %s, which was kept before", data.Name)
		case claim != nil && claim.Labels[keys.HomeID] == f.HomeID:
			// Its data is here, or was being moved here: the line of the claim says what becomes of it.
			line.Verb, line.Why = Leave, ""
		case claim != nil && claim.Annotations[keys.AdoptedFrom] != "":
			line.Verb, line.Why = Leave, "it was made of VolumeSnapshot "+claim.Annotations[keys.AdoptedFrom]+" before"
		case claim != nil:
			line.Verb, line.Again, line.Why = Leave, true, "a claim of that name is there already: delete that one, and run the command again"
		case !slices.Contains(f.Classes, line.Seal.Class):
			line.Verb, line.Again, line.Why = Leave, true, fmt.Sprintf("storage class %s of its copy is gone: make it again, and run the command "+
				"again", line.Seal.Class)
		default:
			continue
		}
		why = cmp.Or(why, fmt.Sprintf("its version of %s is of one moment with claim %s, which is not made of that", line.Seal.Cut.UTC().Format(
			time.RFC3339), line.Claim))
	}
	for _, line := range v {
		if line.Verb == Make && why != "" {
			line.Verb, line.Why = Leave, why+": make a claim of VolumeSnapshot "+line.Version+" by hand if it is of use alone"
		}
		if line.Verb == Make || line.Why != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// dataOf returns the claim that has the data of the one that a version is of, and is kept or was kept by an earlier run; nil if there is
// none. A move, as a failover is one, may have given it another name.
func dataOf(f Facts, line *Line) *corev1.PersistentVolumeClaim {
	for i := range f.Claims {
		claim := &f.Claims[i]
		from, adopted := claim.Annotations[keys.AdoptedFrom]
		if (adopted && from == "" || isKept(f, claim)) && claim.Namespace == line.Namespace &&
			(claim.Name == line.Claim || claim.Annotations[keys.Claim] == line.Seal.Namespace+"/"+line.Seal.Name) {
			return claim
		}
	}
	return nil
}

// isKept says whether the data of a claim at home is in a claim here.
func isKept(f Facts, claim *corev1.PersistentVolumeClaim) bool {
	_, unpublished := claim.Annotations[keys.Unpublished]
	return claim.Labels[keys.HomeID] == f.HomeID && claim.Labels[keys.ReplicaOf] == "" && claim.Labels[keys.MoveOf] == "" &&
		claim.Labels[keys.ClaimUID] != "" && claim.DeletionTimestamp == nil && !unpublished && claim.Status.Phase == corev1.ClaimBound
}

// key is the namespace and the name of the claim.
func (l Line) key() string { return l.Namespace + "/" + l.Claim }

// isMade says whether the claim is there already, made of this very version.
func (l Line) isMade(has map[string]*corev1.PersistentVolumeClaim) bool {
	claim := has[l.key()]
	return claim != nil && claim.Annotations[keys.AdoptedFrom] == l.Version
}

// Text says what becomes of the claim.
func (l Line) Text(now time.Time) string {
	switch l.Verb {
	case Keep:
		text := "kept: its data is here"
		if home, name, _ := strings.Cut(l.Kept.Annotations[keys.Claim], "/"); name != "" && name != l.Claim {
			text += fmt.Sprintf(", and pods knew it as claim %s of namespace %s", name, home)
		}
		return text
	case Make:
		text := fmt.Sprintf("made of version %d, which has what was written in %s until %s (%s ago), of class %s", l.Seal.Number,
			place(l.Seal.Primary), l.Seal.Cut.UTC().Format(time.RFC3339), duration.HumanDuration(now.Sub(l.Seal.Cut)), l.Seal.Class)
		if l.Alone != nil {
			text += fmt.Sprintf(", of one moment with the others; VolumeSnapshot %s has this claim alone until %s: delete those of its group if "+
				"that is better", l.Alone.Version, l.Alone.Seal.Cut.UTC().Format(time.RFC3339))
		}
		return text
	case Leave:
	}
	return "left: " + l.Why
}

func place(cluster string) string {
	if cluster == keys.Home {
		return "the home cluster"
	}
	return "cluster " + cluster
}

// NewClaim returns the claim that is made of a version.
func (l Line) NewClaim() *corev1.PersistentVolumeClaim {
	size := l.Seal.Size
	if l.RestoreSize != nil && l.RestoreSize.Cmp(size) > 0 {
		size = *l.RestoreSize
	}
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: l.Namespace, Name: l.Claim, Annotations: map[string]string{keys.AdoptedFrom: l.Version}},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &l.Seal.Class, AccessModes: l.Seal.AccessModes, VolumeMode: l.Seal.VolumeMode,
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: size}},
			DataSource: &corev1.TypedLocalObjectReference{APIGroup: ptr.To(volumesnapshot.Group), Kind: volumesnapshot.Kind,
				Name: l.Version},
		},
	}
}
