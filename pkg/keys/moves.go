package keys

const (
	// MoveFinalizer keeps a VolumeMove and the claims that it moves: a claim that has
	// no volume for a moment would vanish at once when it is deleted.
	MoveFinalizer = "lodestone.dev/move"
	// MoveOf is a label: the UID of a VolumeMove, on whatever exists for its sake and on
	// a backing claim that holds a copy which no virtual volume stands for, before the
	// move is committed that at the target, afterwards that at the source.
	MoveOf = "lodestone.dev/move"
	// Moving is, on a virtual claim, a label with the value MovingNow while its volume
	// is taken from its pods: new pods that use the claim get the scheduling gate
	// MovingGate then.
	Moving = "lodestone.dev/moving"
	// MovingNow is the value of label Moving.
	MovingNow = "true"
	// MovingGate is the scheduling gate of pods that wait for a move.
	MovingGate = "lodestone.dev/moving"
	// MoveTouched is an annotation on a virtual claim that is written so that
	// kube-controller-manager looks at the claim at once; it says nothing.
	MoveTouched = "lodestone.dev/move-touched"
)
