// Package policies says what the fence consists of: the ValidatingAdmissionPolicies and bindings that refuse writes of v1
// while it is locked, and of v3 until it is open, and what people read whose write was refused. All of it is a function
// of the migration, the lock and the account that migrates, which is what is compared with what the cluster has. It
// imports the API's constants and resources, and asks no cluster: ../fence.go does. Start with Fence.
package policies
