package why

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/locality"
)

// failed are the reasons with which provisioners and Kubernetes say on a claim that it gets no volume.
var failed = reasons("ProvisioningFailed", "FailedBinding")

// ofOthers returns why a claim without a volume waits whose class is not Lodestone's: what its own
// provisioner says, and whether kube-scheduler has chosen a node for it where that can make none.
func (c Claim) ofOthers(s Setting) (Answer, bool) {
	name := fmt.Sprintf("claim %q is of storage class %q, whose provisioner is %q and not Lodestone", c.Name, c.Class.Name,
		c.Class.Provisioner)
	said := ""
	if event := latest(c.Events, failed); event != nil && s.Now.Sub(when(*event)) < memory {
		said = event.Message
	}
	chosen := c.Claim.Annotations[keys.SelectedNode]
	if node := s.node(chosen); node != nil {
		if cluster := node.Labels[keys.Cluster]; cluster != "" && !locality.UsableIn(cluster, c.Claim, c.Volume, c.Class) {
			answer := waits("%s: the scheduler has chosen node %q for it, but in %s no volume is made for such a claim; see that the scheduler "+
				"asks the extender, and delete the pod so that it gets another node", name, chosen, place(cluster))
			if said != "" {
				answer.Sentence += "; the provisioner says: " + said
			}
			return answer, true
		}
	}
	switch {
	case said != "":
		return waits("%s: %s", name, said), true
	case chosen != "":
		return waits("%s: that one makes its volume for node %q; kubectl describe pvc %s -n %s says how far it is", name, chosen, c.Name,
			c.Claim.Namespace), true
	}
	return Answer{}, false
}

// nominated returns that a node was chosen for a pod which is not bound to it yet; false if none was.
func nominated(pod *corev1.Pod) (Answer, bool) {
	node := pod.Status.NominatedNodeName
	if node == "" {
		return Answer{}, false
	}
	return waits("pod %q is to run on node %q, which the scheduler has chosen: it waits until its volumes are made for that node, or until "+
		"pods of lower priority have left it", pod.Name, node), true
}
