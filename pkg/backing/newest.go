package backing

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// Copy is a backing claim in a cluster.
type Copy struct {
	Cluster string
	Claim   *corev1.PersistentVolumeClaim
}

// Ref returns the reference to the copy.
func (c Copy) Ref() Ref { return RefTo(c.Cluster, c.Claim) }

// maxGeneration is the largest generation. No claim is moved so often: a larger number was not written by a move.
const maxGeneration = 1_000_000_000

// GenerationOf returns the generation of a virtual volume or a backing claim; 0 if no move made it, or a version that
// wrote none.
func GenerationOf(o metav1.Object) int64 { return number(o, keys.Generation) }

// ReplacedBy returns the generation of the copy by which a move replaced a backing claim; 0 for none.
func ReplacedBy(b *corev1.PersistentVolumeClaim) int64 { return number(b, keys.ReplacedBy) }

func number(o metav1.Object, key string) int64 {
	n, err := strconv.ParseInt(o.GetAnnotations()[key], 10, 64)
	if err != nil || n < 1 || n > maxGeneration {
		return 0
	}
	return n
}

// NextGeneration returns the generation of what comes after all given ones.
func NextGeneration(of ...int64) int64 { return min(slices.Max(append(of, 0))+1, maxGeneration) }

// Standing says whether a virtual volume stands for the newest of the copies of its claim that virtual volumes have
// stood for. It compares generations, which are counted, and no times: clusters have clocks of their own.
type Standing struct {
	// Current is the backing claim that the volume stands for, Generation the generation of the volume. Only
	// administrators write volumes, while users of a remote cluster may write anything on a backing claim there.
	Current    Ref
	Generation int64
	// Newer are the copies of a later generation, the newest first. Unclear are other copies of which no number says
	// that they are older. A copy that a move has replaced or not finished is neither.
	Newer, Unclear []Copy
	// ReplacedBy is the generation of the copy by which a move has replaced that of the volume; 0 for none.
	ReplacedBy int64
}

// Behind says whether newer data exists than what the volume stands for.
func (s Standing) Behind() bool { return len(s.Newer) > 0 || s.ReplacedBy > 0 }

// After returns the generation with which the volume would be the newest.
func (s Standing) After() int64 {
	last := max(s.Generation, s.ReplacedBy)
	if len(s.Newer) > 0 {
		last = max(last, GenerationOf(s.Newer[0].Claim))
	}
	return NextGeneration(last)
}

// Compare compares a virtual volume, nil for none, with the backing claims that say that they are of its virtual claim.
func (p Place) Compare(volume *corev1.PersistentVolume, claim types.NamespacedName, uid types.UID, copies []Copy) Standing {
	var s Standing
	if volume != nil {
		s.Generation = GenerationOf(volume)
		// What cannot be read names no copy.
		s.Current, _ = RefOf(volume)
	}
	for i, c := range copies {
		owner, ours := p.OwnerOf(c.Claim)
		// What the volume names by UID may have been made for a claim before this one: see WasRestored.
		named := c.Ref() == s.Current && c.Claim.Labels[keys.HomeID] == p.HomeID
		switch {
		case !named && (!ours || owner != claim || !IsOf(c.Claim, uid, p.HomeID)):
		case slices.ContainsFunc(copies[:i], func(other Copy) bool { return other.Ref() == c.Ref() }):
			// Named twice.
		case c.Cluster == s.Current.Cluster && s.Current.Key() == c.Ref().Key():
			// Also if it was made anew, with another UID.
			if by := ReplacedBy(c.Claim); by > s.Generation {
				s.ReplacedBy = by
			}
		case Unpublished(c.Claim) || c.Claim.Labels[keys.MoveOf] != "":
		case GenerationOf(c.Claim) > s.Generation:
			s.Newer = append(s.Newer, c)
		case GenerationOf(c.Claim) == s.Generation:
			s.Unclear = append(s.Unclear, c)
		}
	}
	slices.SortFunc(s.Newer, func(a, b Copy) int {
		return cmp.Or(cmp.Compare(GenerationOf(b.Claim), GenerationOf(a.Claim)), cmp.Compare(a.Ref().String(), b.Ref().String()))
	})
	return s
}

// Describe says in a sentence what is newer than the volume's copy, and how an administrator chooses. claim is the
// virtual claim.
func (s Standing) Describe(claim types.NamespacedName) string {
	was := fmt.Sprintf("real claim %s in %s (UID %s)", s.Current.Key(), s.Current.where(), s.Current.UID)
	choose := fmt.Sprintf("kubectl lodestone choose pvc %s -n %s --uid", claim.Name, claim.Namespace)
	const held = "new pods of this claim wait, those that run are not stopped, and nothing is deleted"
	if len(s.Newer) == 0 {
		return fmt.Sprintf("a move has replaced %s, which the volume stands for, by one that this cluster does not know any more, as after a "+
			"restore from a backup: %s; find the newer data, or let an administrator use the older: %s %s", was, held, choose, s.Current.UID)
	}
	newest := s.Newer[0].Ref()
	return fmt.Sprintf("real claim %s in %s (UID %s) was made by a later move than %s, which the volume stands for, as after a restore "+
		"from a backup: %s; stop the pods that run, and let an administrator choose the newer data with %s %s, or the older with --uid %s",
		newest.Key(), newest.where(), newest.UID, was, held, choose, newest.UID, s.Current.UID)
}

// where names the cluster in a sentence.
func (r Ref) where() string {
	if r.Cluster == keys.Home {
		return "the home cluster"
	}
	return "cluster " + r.Cluster
}
