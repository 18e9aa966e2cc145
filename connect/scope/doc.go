// Package scope is what a connection may do, in the words of OAuth scopes (RFC 6749, section 3.3) and in plain ones.
//
// Three scopes are published: mcp:read, mcp:write (which includes reading) and mcp:use (everything). Underneath, each
// area of a business's account has scopes of its own, such as contacts:read or automations:run, so that a person can
// narrow a connection by area. What a scope stands for is a set of rights, one for each area and verb; a [Set] allows
// a scope if its rights hold all rights of that scope:
//
//	mcp:use     every right
//	mcp:write   read and write of every area, run of none
//	mcp:read    read of every area
//	X:write     read and write of the area X
//	X:run       read and run of the area X
//	X:read      read of the area X
package scope
