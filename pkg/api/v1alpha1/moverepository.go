package v1alpha1

// MoveRepository is an object store, or a claim, for the content of moves.
//
// +kubebuilder:validation:XValidation:rule="has(self.secretName) != has(self.claimName)",message="name either the Secret of an object store (secretName) or a claim (claimName), and not both"
type MoveRepository struct {
	// SecretName is a Secret in the namespace where Lodestone runs: url is
	// rest:https://HOST/PATH or s3:https://HOST/BUCKET/PATH, ca.crt the authority of the
	// store's certificate, if not everybody trusts it; the credentials are in
	// RESTIC_REST_USERNAME and RESTIC_REST_PASSWORD, or AWS_ACCESS_KEY_ID,
	// AWS_SECRET_ACCESS_KEY and AWS_DEFAULT_REGION.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	SecretName string `json:"secretName,omitempty"`

	// ClaimName is a claim wherever movers run: in the namespace of the real claims at
	// home, and in each namespace of real claims in a remote cluster. All of that name must
	// be ReadWriteMany, hold nothing else, and lead to the same storage.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	ClaimName string `json:"claimName,omitempty"`
}
