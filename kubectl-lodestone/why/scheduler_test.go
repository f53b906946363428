package why

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestWhatTheSchedulerSaysIsSaidInOtherWords(t *testing.T) {
	for name, row := range map[string]struct{ says, want string }{
		"too little of something, and preemption would not help": {
			says: "0/2 nodes are available: 2 Insufficient cpu. preemption: 0/2 nodes are available: 2 No preemption victims found for " +
				"incoming pod.",
			want: "of 2 nodes, 2 have too little cpu left; free some, or have the pod ask for less",
		},
		"devices and preemption": {
			says: "0/1 nodes are available: 1 Insufficient memory. no new claims to deallocate, preemption: 0/1 nodes are available: 1 " +
				"Preemption is not helpful for scheduling.",
			want: "of 1 node, 1 has too little memory left; free some, or have the pod ask for less",
		},
		"a remote cluster to which it may not go, and a full node": {
			says: "0/3 nodes are available: 1 Too many pods, 2 node(s) had untolerated taint {lodestone.dev/remote: west}. preemption: 0/3 nodes " +
				"are available: 1 No preemption victims found for incoming pod, 2 Preemption is not helpful for scheduling.",
			want: "of 3 nodes, 1 has as many pods as it may have, 2 stand for remote clusters to which the pod may not go; remove pods, " +
				"or add a node",
		},
		"a taint of somebody else": {
			says: "0/2 nodes are available: 2 node(s) had untolerated taint(s) {node.kubernetes.io/disk-pressure: }.",
			want: "of 2 nodes, 2 have a taint that the pod does not tolerate (node.kubernetes.io/disk-pressure: )",
		},
		"many things": {
			says: "0/6 nodes are available: 1 node(s) didn't match PersistentVolume's node affinity, 1 node(s) didn't match Pod's node " +
				"affinity/selector, 1 node(s) didn't match pod anti-affinity rules, 1 node(s) didn't match pod topology spread constraints, 1 " +
				"node(s) were unschedulable, 1 node(s) did not have enough free storage.",
			want: "of 6 nodes, 1 cannot use the volumes of the pod, 1 is not one that the pod's node selector or affinity asks for, 1 has a pod " +
				"beside which this one must not run, 1 has its share of such pods (topologySpreadConstraints), 1 is cordoned, 1 has too little " +
				"storage left for its claims; correct these, or label a node",
		},
		"what the extender says, with figures and commas": {
			says: "0/3 nodes are available: 1 Insufficient cpu, 2 the data of claim data is in cluster west, or 3 others.",
			want: "of 3 nodes, 1 has too little cpu left, 2: the data of claim data is in cluster west, or 3 others; free some, or have the pod " +
				"ask for less",
		},
		"what the extender says of nodes": {
			says: "0/3 nodes are available: 1 node(s) of a remote cluster that is not Ready: see kubectl get remoteclusters, 2 node(s) outside " +
				"the cluster that holds the volume's data.",
			want: "of 3 nodes, 1 is a node of a remote cluster that is not Ready: see kubectl get remoteclusters, 2 are nodes outside the cluster " +
				"that holds the volume's data",
		},
		"what kube-scheduler says of nodes, which is not known": {
			says: "0/3 nodes are available: 3 node(s) had no luck.",
			want: "of 3 nodes, 3: node(s) had no luck",
		},
		"no number of nodes": {
			says: "0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found",
			want: "pod has unbound immediate PersistentVolumeClaims. not found",
		},
		"another sentence":         {says: `persistentvolumeclaim "data" not found`, want: `persistentvolumeclaim "data" not found`},
		"gates":                    {says: "Scheduling is blocked due to non-empty scheduling gates", want: ""},
		"containers that start":    {says: "containers with unready status: [app log]", want: ""},
		"nothing":                  {says: "", want: ""},
		"nothing but what is same": {says: "preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.", want: ""},
	} {
		assert.Equal(t, row.want, fitsNone(row.says), name)
	}
}
